"""Hold protocols to their laws: under every loss of users, and under all that ours are held to."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from simfl.cli.common import FAILED, Set, app, keeping, overrides, say, tell, tell_whose_code


@app.command()
def explore(
    protocol: Annotated[str, typer.Argument(help="See `simfl list protocols`.", metavar="PROTOCOL")],
    users: Annotated[int, typer.Option(min=3, help="Size of the cohort; beyond 6 use --random.")] = 4,
    random: Annotated[
        int | None, typer.Option(min=1, metavar="COUNT", help="So many random patterns instead of all.")
    ] = None,
    seed: Annotated[int, typer.Option(help="For keys, updates and random graphs.")] = 0,
    set_: Set = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes that try patterns side by side.")] = 1,
    out: Annotated[str, typer.Option(metavar="FILE", help="A broken law's scenario.")] = "explored.yaml",
) -> None:
    """Lose users at every combination of points, and hold every law to each round."""
    from simfl.folder.result import atomic
    from simfl.reports import terminal
    from simfl.scenario.load import resolved_yaml
    from simfl.studies.explore.rounds import Report, explore, make_cohort, reproduced, sample, total

    cohort = make_cohort(protocol, users, seed, overrides(set_))
    tell_whose_code()
    report, errors, since = Report(), terminal.console(stderr=True), time.monotonic()
    patterns = total(cohort) if random is None else random
    label = f"{cohort.protocol}, {cohort.users} users"

    def counts() -> str:
        took = f"{report.patterns} patterns in {time.monotonic() - since:.0f} s"
        return f"{label}: {took}, {report.completed} completed, {report.aborted} aborted"

    def watch(now: Report) -> None:
        nonlocal report
        report = now
        done(now.patterns)

    with (
        keeping(lambda: f"; {counts()}, no law broken so far"),
        terminal.counting(errors, label, patterns) as done,
    ):
        if random is None:
            explore(cohort, watch, jobs)
        else:
            sample(cohort, random, watch)
    if report.violation is None:
        say(f"{counts()}; every law held", further="  ")
        return
    say(f"{counts()}; a law is broken:", further="  ")
    tell(f"  {report.violation}")
    again = reproduced(cohort, report.violation)
    say("On the engine: " + ("; ".join(again) if again else "every law held"), further="  ")
    scenario = resolved_yaml(cohort.replayable(report.violation.pattern, report.violation.detect))
    with atomic(Path(out)) as file:
        file.writelines(f"# {law}\n" for law in report.violation.laws)
        file.write(scenario)
    tell(f"Written to {out}; replay it with: python run.py {out}")
    raise typer.Exit(FAILED)


@app.command()
def verify(
    protocol: Annotated[str, typer.Argument(help="path.py:Name, or one of ours.", metavar="PROTOCOL")],
    set_: Set = None,
) -> None:
    """Hold a protocol to equal traces, exact sums, every loss, refusals, sizes, replays."""
    from simfl.studies.verify import Subject, verify

    failed = 0
    for name, held_to, findings in verify(Subject(protocol, overrides(set_))):
        tell_whose_code()
        say(f"{'FAILED' if findings else 'ok    '}  {name.replace('_', ' ')}: {held_to}", further=" " * 8)
        for finding in findings[:5]:
            say(f"        - {finding}", further=" " * 10)
        failed += bool(findings)
    if failed:
        raise typer.Exit(FAILED)
