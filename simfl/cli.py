"""The command line. Exit codes: 0 done; 1 the run failed; 2 a bad scenario or bad usage; 130 interrupted.

Heavy modules are imported inside the commands that need them: `--help` answers at once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from simfl.result import Result
    from simfl.scenario.schema import Scenario
    from simfl.studies.explore import AnyCohort, Violation

FAILED, BAD, INTERRUPTED = 1, 2, 130

app = typer.Typer(
    name="simfl",
    help="Federated learning with real secure aggregation, in virtual time.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


class Format(StrEnum):
    """What `run` prints."""

    table = "table"
    json = "json"


class Things(StrEnum):
    """What `list` lists."""

    protocols = "protocols"
    models = "models"
    datasets = "datasets"
    profiles = "profiles"
    backends = "backends"


ScenarioFile = Annotated[Path, typer.Argument(help="A scenario, YAML.", metavar="SCENARIO")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a value, such as a.b=c.")
]
Seed = Annotated[int | None, typer.Option(help="The scenario's seed.")]
ClockOption = Annotated[
    str | None, typer.Option(metavar="CLOCK", help="measured, modelled, or recorded:DIR.")
]
Protocols = Annotated[str | None, typer.Option(metavar="A,B", help="Only these of its protocols.")]
Workers = Annotated[int | None, typer.Option(help="Threads for the real work; 0: in line.")]


@app.command("run")
def run_command(
    scenario: ScenarioFile,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the run's files go.")] = None,
    set_: Set = None,
    seed: Seed = None,
    clock: ClockOption = None,
    protocols: Protocols = None,
    workers: Workers = None,
    format_: Annotated[Format, typer.Option("--format", help="What is printed.")] = Format.table,
    no_progress: Annotated[bool, typer.Option("--no-progress", help="No live progress.")] = False,
) -> None:
    """Simulate a scenario; print its breakdown; leave trace, summary and tables in a folder."""
    loaded = _load(scenario, set_, seed, clock, protocols, workers)
    folder = out or _fresh(Path("runs") / loaded.name)
    if folder.exists() and not folder.is_dir():
        raise typer.BadParameter(f"{folder} is a file, not a folder", param_hint="--out")

    from rich.console import Console

    from simfl.reports import terminal
    from simfl.simulate import run

    errors = Console(stderr=True)
    live = format_ is Format.table and not no_progress and errors.is_terminal
    if live:
        unit = "aggregations" if loaded.buffer else "rounds"
        with terminal.progress(errors, loaded.rounds, unit) as watch:
            result = _or_partial(lambda: run(loaded, out=folder, watch=watch), folder)
    else:
        result = _or_partial(lambda: run(loaded, out=folder), folder)
    if format_ is Format.json:
        print(json.dumps(result.summary, indent=2))
    else:
        terminal.show(Console(), result.summary, loaded.profile)
        print(f"Written to {folder}")


@app.command()
def check(
    scenario: ScenarioFile,
    set_: Set = None,
    seed: Seed = None,
    clock: ClockOption = None,
    protocols: Protocols = None,
    workers: Workers = None,
) -> None:
    """Check a scenario without running it, and print what it resolves to."""
    loaded = _load(scenario, set_, seed, clock, protocols, workers)

    from simfl.reports.histogram import label_histogram
    from simfl.scenario.build import build, clocks
    from simfl.scenario.load import resolved_yaml
    from simfl.scenario.sparsity import promises

    study = build(loaded)
    clocks(study)
    many = len(study.partitions) > 1
    print(resolved_yaml(loaded), end="")
    kind = "aggregations" if loaded.buffer else "rounds"
    print(
        f"# {scenario.name}: good; {loaded.population.users} users, {loaded.rounds} {kind} of "
        f"{', '.join(loaded.protocols)}; the model has d = {study.trainer.d} parameters"
    )
    for line in (*promises(loaded), *study.training_times()):
        print(f"# {line}")
    for name, counts in study.partitions.items():
        dealt = loaded.of(name).learning.partition
        print(f"# {loaded.learning.dataset.kind}, {dealt.kind}" + (f" ({name}):" if many else ":"))
        for line in label_histogram(counts, width=78):
            print(f"# {line}")


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
    from simfl.protocols.registry import PROTOCOLS
    from simfl.scenario.load import parse_override
    from simfl.scenario.wording import did_you_mean

    if protocol not in PROTOCOLS:
        known = f"known: {', '.join(PROTOCOLS)}{did_you_mean(protocol, PROTOCOLS)}"
        raise typer.BadParameter(f"unknown protocol {protocol!r}; {known}", param_hint="PROTOCOL")
    overrides = dict(parse_override(text) for text in set_ or [])

    from simfl.studies.explore import make_cohort

    _explore(make_cohort(protocol, users, seed, overrides), random, jobs, Path(out))


def _explore(cohort: AnyCohort, random: int | None, jobs: int, out: Path) -> None:
    import time

    from rich.console import Console

    from simfl.reports import terminal
    from simfl.studies.explore import Report, explore, reproduced, sample, total

    report, errors, since = Report(), Console(stderr=True), time.monotonic()
    patterns = total(cohort) if random is None else random
    label = f"{cohort.protocol}, {cohort.users} users"

    def told(done: Callable[[int], None]) -> Callable[[Report], None]:
        def watch(now: Report) -> None:
            nonlocal report
            report = now
            done(now.patterns)

        return watch

    def counts() -> str:
        took = f"{report.patterns} patterns in {time.monotonic() - since:.0f} s"
        return f"{label}: {took}, {report.completed} completed, {report.aborted} aborted"

    try:
        with terminal.counting(errors, label, patterns) as done:
            if random is None:
                report = explore(cohort, told(done), jobs)
            else:
                report = sample(cohort, random, told(done))
    except KeyboardInterrupt:
        print(f"Interrupted; {counts()}, no law broken so far", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    if report.violation is None:
        print(f"{counts()}; every law held")
        return
    print(f"{counts()}; a law is broken:\n  {report.violation}")
    again = reproduced(cohort, report.violation)
    print("On the engine: " + ("; ".join(again) if again else "every law held"))
    _write_violation(cohort, report.violation, out)
    print(f"Written to {out}; replay it with: python run.py {out}")
    raise typer.Exit(FAILED)


def _write_violation(cohort: AnyCohort, violation: Violation, out: Path) -> None:
    from simfl.result import atomic
    from simfl.scenario.load import resolved_yaml

    scenario = cohort.replayable(violation.pattern, violation.detect)
    with atomic(out) as file:
        file.writelines(f"# {law}\n" for law in violation.laws)
        file.write(resolved_yaml(scenario))


@app.command()
def repeat(
    scenario: ScenarioFile,
    seeds: Annotated[int, typer.Option(min=1, help="So many seeds: the scenario's and the next.")] = 5,
    jobs: Annotated[int, typer.Option(min=1, help="Processes that run seeds side by side.")] = 1,
    set_: Set = None,
    protocols: Protocols = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="The runs' summaries, JSON.")] = None,
) -> None:
    """Run a scenario under several seeds; print accuracy, T, F and C with their spread."""
    loaded = _load(scenario, set_, None, None, protocols, None)

    from rich.console import Console

    from simfl.reports import terminal
    from simfl.result import atomic
    from simfl.studies.repeat import over_seeds

    numbers = range(loaded.seed, loaded.seed + seeds)
    try:
        with terminal.counting(Console(stderr=True), loaded.name, seeds) as done:
            summaries = over_seeds(loaded, numbers, jobs, done)
    except KeyboardInterrupt:
        print("Interrupted", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    entries = {name: [run["protocols"][name] for run in summaries.values()] for name in loaded.protocols}
    console = Console()
    console.print(terminal.participation(entries))
    if out is not None:
        with atomic(out) as file:
            json.dump({str(seed): summary for seed, summary in summaries.items()}, file)
        print(f"Written to {out}")


@app.command()
def privacy(
    folder: Annotated[Path, typer.Argument(help="A run with record_updates: true.", metavar="RUN")],
    first: Annotated[int | None, typer.Option("--from", metavar="ROUND", help="First round.")] = None,
    last: Annotated[int | None, typer.Option("--to", metavar="ROUND", help="Last round.")] = None,
) -> None:
    """Attack a run: reconstruct users' updates from its aggregates by least squares."""
    from simfl.errors import BadInput
    from simfl.privacy.recorded import attack
    from simfl.reports.attack import lines

    files = sorted(folder.glob("updates-*.npz"))
    if not files:
        raise BadInput(f"{folder}: no updates-*.npz: run its scenario with record_updates: true")
    for file in files:
        print("\n".join(lines(file.stem.removeprefix("updates-"), attack(file, first, last))))


@app.command()
def schema() -> None:
    """Print the JSON Schema of scenarios, for editors."""
    from simfl.scenario.load import json_schema

    print(json.dumps(json_schema(), indent=2))


@app.command("list")
def list_command(things: Annotated[Things, typer.Argument(help="What to list.")]) -> None:
    """List protocols, models, datasets, profiles or the backends of matrix products."""
    from simfl.catalog import listed

    for name, text in listed(things):
        print(f"{name:<20}{text}".rstrip())


def _load(
    scenario: Path,
    set_: list[str] | None,
    seed: int | None,
    clock: str | None,
    protocols: str | None,
    workers: int | None,
) -> Scenario:
    from simfl.scenario.load import load, parse_override, select_protocols

    overrides: dict[str, Any] = dict(parse_override(text) for text in set_ or [])
    given = {"seed": seed, "clock": clock, "workers": workers}
    overrides |= {key: value for key, value in given.items() if value is not None}
    loaded = load(scenario, overrides)
    if protocols is not None:
        loaded = select_protocols(loaded, [name.strip() for name in protocols.split(",")])
    return loaded


def _fresh(folder: Path) -> Path:
    """The folder itself, or with the first number that is free: no run overwrites another unasked."""
    number, fresh = 1, folder
    while fresh.exists():
        number += 1
        fresh = folder.with_name(f"{folder.name}-{number}")
    return fresh


def _or_partial(simulation: Callable[[], Result], folder: Path) -> Result:
    try:
        return simulation()
    except KeyboardInterrupt:
        what = f"; what was finished is in {folder}" if folder.exists() else ""
        print(f"Interrupted{what}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit. What a user can cause ends in one message, never a traceback."""
    from simfl.errors import BadInput, RunFailed

    try:
        app(arguments)
    except BadInput as error:
        print(error, file=sys.stderr)
        sys.exit(BAD)
    except (RunFailed, OSError) as error:
        print(f"simfl: {error}", file=sys.stderr)
        sys.exit(FAILED)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
