"""Studies of many runs: a grid under every seed, every loss of users, and the work of this machine."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from simfl.cli.common import FAILED, app, ask_before_long, bars, keeping, say, stages, tell, warn_inexact
from simfl.cli.folders import check_place
from simfl.cli.inputs import Set, Yes, names_and_files, settings, tell_whose_code

if TYPE_CHECKING:
    from simfl.studies.sweep.run import Sweep

JOBS_HELP = "Cells at a time on this machine: as many as it has cores, measured ones 1."
STUDY_HELP = "A study (base, set, cells, grid, seeds): YAML, or a name such as studies/which_links."
MAX_FINDINGS = 5
"""Findings of a check that are printed."""


@app.command()
def sweep(
    study: Annotated[Path, Argument(help=STUDY_HELP, metavar="STUDY", autocompletion=names_and_files)],
    out: Annotated[
        Path | None, Option(metavar="DIR", help="Where cells and tables go; sweeps/NAME unless given.")
    ] = None,
    jobs: Annotated[int | None, Option(min=1, help=JOBS_HELP)] = None,
    backend: Annotated[Literal["loky", "dask", "ray"], Option(help="What runs them.")] = "loky",
    address: Annotated[
        str | None, Option(metavar="ADDRESS", help="Of a Dask scheduler or Ray cluster that is there.")
    ] = None,
    keep_traces: Annotated[bool, Option("--keep-traces", help="Each cell keeps its trace.")] = False,
    parquet: Annotated[bool, Option("--parquet", help="Write sweep.parquet too.")] = False,
) -> None:
    """Run what is missing of a study, keep each cell, print means and 95 % intervals over seeds.

    The same command goes on where a sweep was stopped: a cell is stored under its resolved scenario and the
    code's version, and is not run again. Exit code 1: a cell failed, or an aggregate is not the plain sum.

    Example: simfl sweep studies/users_and_losses
    """
    from simfl.studies.sweep.study import complete, open_sweep

    state = open_sweep(study, out, keep_traces)
    tell_whose_code()

    def kept() -> str:
        every, folder = set(state.keys), state.store.folder
        number = sum(map(state.store.has, every))
        cells = f"; {number} of {len(every)} cells are kept in {folder}" if number else ""
        return f"{cells}; the same command goes on from there"

    with keeping(kept):
        try:
            with bars() as watch:
                complete(state, jobs, backend, address, parquet, watch, partial(tell, error=True))
        finally:
            _tell_failures(state)
    exact = _show(state)
    if state.failures or not exact:
        raise typer.Exit(FAILED)


def _show(state: Sweep) -> bool:
    """Print the means, and return True if all aggregates of the cells that did not fail are exact."""
    from simfl.reports import terminal
    from simfl.reports.model import Report, participation
    from simfl.runs.results.drift import warning
    from simfl.studies.sweep import tables
    from simfl.studies.sweep.terminal import show_sweep

    plan, console = state.plan, terminal.console()
    seeds = len({cell.seed for cell in plan.cells})
    means = tables.means(tables.rows(state))
    show_sweep(console, plan.name, plan.points, means, seeds, tables.failures(state))
    summaries = {key: summary for _, key, summary in state.kept()}.values()
    if moved := warning([s.drift for s in summaries]):
        say(moved)
    for label, entries in tables.selections(state):
        tell(f"\n{label}".rstrip())
        terminal.show(console, Report(list(participation(entries))))
    without = Counter(name for s in summaries for name, entry in s.protocols.items() if not entry.completed)
    for name, count in without.items():
        tell(f"{name} has no aggregate in {count} of {len(summaries)} cells")
    cells, failures = len(set(state.keys)), len(state.failures)
    failed = f", {failures} failed" if failures else ""
    counts = f"{state.stored} were stored, {cells - state.stored - failures} run{failed}"
    tell(f"{cells} cells: {counts}. Written to {state.store.folder}")
    kept = {key: (plan.label(cell), summary.protocols) for cell, key, summary in state.kept()}
    return not warn_inexact(kept.values())


def _tell_failures(state: Sweep) -> None:
    for cell, why in state.failures.values():
        tell(f"failed: {state.plan.label(cell)}: {why.reason}", error=True)
    if state.failures:
        file = state.store.folder / "failures.txt"
        counts = f"{len(state.failures)} of {len(set(state.keys))} cells failed"
        tell(f"{counts}; details in {file}", error=True)


@app.command()
def explore(
    protocol: Annotated[str, Argument(help="See `simfl list protocols`.", metavar="PROTOCOL")],
    users: Annotated[int, Option(min=3, help="Size of the cohort; beyond 6 use --random.")] = 4,
    random: Annotated[
        int | None, Option(min=1, metavar="COUNT", help="So many random patterns instead of all.")
    ] = None,
    seed: Annotated[int, Option(help="For keys, updates and random graphs.")] = 0,
    set_: Set = None,
    jobs: Annotated[int, Option(min=1, help="Processes that try patterns side by side.")] = 1,
    yes: Yes = False,
    out: Annotated[Path, Option(metavar="FILE", help="The scenario of a violation.")] = Path("explored.yaml"),
) -> None:
    """Lose users at every combination of points, and check every invariant in each round.

    It counts the patterns, times a few, and asks before it begins what would take more than an hour.

    Example: simfl explore secagg --users 4
    """
    from simfl.runs.folder.disk import write_text
    from simfl.studies.explore.coverage import counted
    from simfl.studies.explore.exploration import open_exploration

    check_place(out)
    exploration, since = (
        open_exploration(protocol, users, random, seed, settings(set_), jobs),
        time.monotonic(),
    )
    tell_whose_code()
    cohort, patterns = exploration.cohort, exploration.patterns
    label = f"{cohort.protocol}, {cohort.users} users"
    if not yes:
        with stages() as stage:
            stage(f"{label}: timing a few of {patterns} patterns")
            expected = exploration.seconds(jobs)
        ask_before_long(f"{label}: all {patterns:,} patterns", expected, yes)

    def counts() -> str:
        report = exploration.report
        took = f"{report.patterns} patterns in {time.monotonic() - since:.0f} s"
        return f"{label}: {took}, {report.completed} completed, {report.aborted} aborted"

    with keeping(lambda: f"; {counts()}, no invariant violated so far"), bars() as watch:
        exploration.run(jobs, lambda report: watch(label, report.patterns, patterns))
    broken = exploration.violation
    if broken is None:
        say(f"{counts()}; every invariant held", further="  ")
        rows = exploration.rows
        for row in rows:
            say(f"  {row}", further=" " * 13)
        say(f"  {counted(rows)}")
        return
    say(f"{counts()}; an invariant is violated:", further="  ")
    tell(f"  {broken}")
    if exploration.report.patterns < patterns:
        say(f"  Not tried: the rest of {patterns:,} patterns, as an invariant is violated", further="    ")
    say("On the engine: " + ("; ".join(exploration.replayed) or "every invariant held"), further="  ")
    write_text(out, exploration.scenario_text())
    tell(f"Written to {out}; replay it with: python run.py {out}")
    raise typer.Exit(FAILED)


@app.command()
def verify(
    protocol: Annotated[str, Argument(help="path.py:Name, or one of ours.", metavar="PROTOCOL")],
    set_: Set = None,
) -> None:
    """Hold a protocol to exact sums, every loss, refusals, and what a server and colluders may learn.

    Each row is ok, FAILED with its findings, or not tried and why; the last line counts them.

    Example: simfl verify secagg
    """
    from simfl.studies import verify as verifying

    def show(row: verifying.Row) -> None:
        tell_whose_code()
        say(f"{row.outcome:<11}{row.name.replace('_', ' ')}: {row.demand}", further=" " * 11)
        for finding in row.findings[:MAX_FINDINGS]:
            say(f"{'':11}- {finding}", further=" " * 13)
        if row.outcome == "not tried":
            say(f"{'':11}because {row.not_tried}", further=" " * 11)

    rows = verifying.verify(protocol, settings(set_), show)
    say(verifying.counted_rows(rows))
    if any(row.findings for row in rows):
        raise typer.Exit(FAILED)


@app.command()
def calibrate(
    out: Annotated[
        Path | None, Argument(help="Where the profile goes; printed unless given.", metavar="[OUT.yaml]")
    ] = None,
    scenario: Annotated[
        Path | None,
        Option(
            "--for",
            metavar="SCENARIO",
            help="Find the law of its model's training too.",
            autocompletion=names_and_files,
        ),
    ] = None,
    passes: Annotated[int, Option(min=6, help="How often everything is measured: intervals need 6.")] = 21,
) -> None:
    """Measure the seconds of each kind of work on this machine, with 95 % intervals: a device profile.

    Example: simfl calibrate here.yaml
    """
    from simfl.runs.folder.disk import write_text
    from simfl.studies.calibrate import passes as measuring
    from simfl.world.profiles import text

    if out is not None:
        check_place(out)
    with bars() as watch:
        profile = measuring.calibrate(scenario, passes, lambda done: watch("pass", done, passes))
    if out is None:
        print(text(profile), end="")
        return
    write_text(out, text(profile))
    for kind, (low, high) in profile["intervals"].items():
        print(f"{kind:<18}{profile['seconds'][kind]:<10.3g} s   95 %: {low:.3g} to {high:.3g}")
    print(f"{out}: name it as a scenario's profile, with clock: modelled")
