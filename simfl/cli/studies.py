"""Studies of many runs: a grid under every seed, every loss of users, and the work of this machine."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from simfl.cli.common import FAILED, app, ask_before_long, keeping, say, stages, tell, warn_inexact
from simfl.cli.folders import check_place
from simfl.cli.inputs import Set, Yes, names_and_files, settings, tell_whose_code
from simfl.errors import need

if TYPE_CHECKING:
    from simfl.studies.sweep.backends import Backend
    from simfl.studies.sweep.run import Sweep

JOBS_HELP = "Cells at a time on this machine: as many as it has cores, measured ones 1."
STUDY_HELP = "A study (base, set, cells, grid, seeds): YAML, or a name such as studies/which_links."
MAX_FINDINGS = 5  # of a law that a protocol breaks, that are listed


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
    if address is not None and backend == "loky":
        raise typer.BadParameter("goes with --backend dask or ray", param_hint="--address")

    from simfl.studies.sweep import backends
    from simfl.studies.sweep.plan import make_plan
    from simfl.studies.sweep.run import Sweep
    from simfl.studies.sweep.store import Store

    backends.need(backend)
    if jobs is not None and address is None:
        backends.check_jobs(jobs)
    if parquet:
        need("--parquet", "pyarrow.parquet")
    plan = make_plan(study)
    tell_whose_code()
    folder = out or Path("sweeps") / plan.name
    if folder.exists() and not folder.is_dir():
        raise typer.BadParameter(f"{folder} is a file, not a folder", param_hint="--out")
    state = Sweep(plan, Store(folder), keep_traces)

    def kept() -> str:
        number = sum(map(state.store.has, set(state.keys)))
        cells = f"; {number} of {len(set(state.keys))} cells are kept in {folder}" if number else ""
        return f"{cells}; the same command goes on from there"

    with keeping(kept):
        stored = _perform(state, backend, jobs or state.at_once, address, parquet)
    exact = _show(state, stored)
    if state.failures or not exact:
        raise typer.Exit(FAILED)


def _perform(state: Sweep, backend: Backend, jobs: int, address: str | None, parquet: bool) -> int:
    """Check and run the missing cells, and write the tables; return the number of cells that were stored."""
    from simfl.reports.tables import write_parquet
    from simfl.reports.terminal import console, counting
    from simfl.runs.folder.disk import write_text
    from simfl.studies.sweep import tables
    from simfl.studies.sweep.page import page
    from simfl.studies.sweep.picture import folder_names, picture
    from simfl.studies.sweep.plan import check

    errors, plan, store = console(stderr=True), state.plan, state.store
    new = [cell for key, cell in zip(state.keys, plan.cells, strict=True) if not store.has(key)]
    with counting(errors, f"{plan.name}: checking", len({cell.point for cell in new})) as watch:
        check(plan, new, watch)
    with store.locked():
        todo = state.missing(lambda text: tell(text, error=True))
        try:
            with counting(errors, plan.name, len(todo)) as watch:
                state.perform(todo, backend, jobs, address, watch)
            columns = tables.write(state)
            store.link(folder_names(state))
            write_text(store.folder / "report.html", page(picture(state)))
            if parquet:
                write_parquet(store.folder / "sweep.parquet", columns)
        finally:
            _failures(state)
    return len(set(state.keys)) - len(todo)


def _show(state: Sweep, stored: int) -> bool:
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
    counts = f"{stored} were stored, {cells - stored - failures} run{failed}"
    tell(f"{cells} cells: {counts}. Written to {state.store.folder}")
    kept = {key: (plan.label(cell), summary.protocols) for cell, key, summary in state.kept()}
    return not warn_inexact(kept.values())


def _failures(state: Sweep) -> None:
    """List the cells that failed; their tracebacks go to a file."""
    from simfl.runs.folder.disk import atomic

    file = state.store.folder / "failures.txt"
    file.unlink(missing_ok=True)
    if not state.failures:
        return
    with atomic(file) as out:
        for cell, why in state.failures.values():
            out.write(f"{state.plan.label(cell)}: {why.reason}\n{why.details}\n")
            tell(f"failed: {state.plan.label(cell)}: {why.reason}", error=True)
    tell(f"{len(state.failures)} of {len(set(state.keys))} cells failed; details in {file}", error=True)


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
    out: Annotated[str, Option(metavar="FILE", help="A broken law's scenario.")] = "explored.yaml",
) -> None:
    """Lose users at every combination of points, and hold every law to each round.

    It counts the patterns, times a few, and asks before it begins what would take more than an hour.

    Example: simfl explore secagg --users 4
    """
    if random is not None:
        need("--random", "hypothesis", "explore")
    from simfl.reports.terminal import console, counting
    from simfl.runs.folder.disk import atomic
    from simfl.scenario.load import resolved_yaml
    from simfl.studies.explore.effort import FEW_PATTERNS, seconds_for_all
    from simfl.studies.explore.reached import Tried, counted, tried
    from simfl.studies.explore.rounds import Report, explore, judge, make_cohort, sample, total
    from simfl.studies.sweep.backends import check_jobs

    check_jobs(jobs)
    check_place(Path(out))
    cohort = make_cohort(protocol, users, seed, settings(set_))
    tell_whose_code()
    report, since = Report(), time.monotonic()
    patterns = total(cohort) if random is None else random
    label = f"{cohort.protocol}, {cohort.users} users"
    if random is None and patterns > FEW_PATTERNS and not yes:
        with stages() as stage:
            stage(f"{label}: timing a few of {patterns} patterns")
            expected = seconds_for_all(cohort, jobs)
        ask_before_long(f"{label}: all {patterns:,} patterns", expected, yes)

    def counts() -> str:
        took = f"{report.patterns} patterns in {time.monotonic() - since:.0f} s"
        return f"{label}: {took}, {report.completed} completed, {report.aborted} aborted"

    def watch(now: Report) -> None:
        nonlocal report
        report = now
        done(now.patterns)

    kept = keeping(lambda: f"; {counts()}, no law broken so far")
    with kept, counting(console(stderr=True), label, patterns) as done:
        if random is None:
            explore(cohort, watch, jobs)
        else:
            sample(cohort, random, watch)
    if report.violation is None:
        say(f"{counts()}; every law held", further="  ")
        rows = [*cohort.laws, *tried(report.reached, cohort.rows)]
        if random is not None:
            of = f"{total(cohort):,} patterns"
            rows.append(Tried(f"the rest of {of}", because=f"--random {random} tries so many"))
        for row in rows:
            say(f"  {row}", further=" " * 13)
        say(f"  {counted(rows)}")
        return
    say(f"{counts()}; a law is broken:", further="  ")
    found = report.violation
    tell(f"  {found}")
    if report.patterns < patterns:
        say(f"  Not tried: the rest of {patterns:,} patterns, because a law is broken", further="    ")
    _, again = judge(cohort, found.pattern, found.detect, replay=True)
    say("On the engine: " + ("; ".join(again) if again else "every law held"), further="  ")
    scenario = resolved_yaml(cohort.replayable(found.pattern, found.detect))
    with atomic(Path(out)) as file:
        file.writelines(f"# {law}\n" for law in found.laws)
        file.write(scenario)
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
    from simfl.studies.subject import Subject
    from simfl.studies.verify import Row, counted_rows, verify

    rows = list[Row]()
    for row in verify(Subject(protocol, settings(set_))):
        tell_whose_code()
        rows.append(row)
        say(f"{row.outcome:<11}{row.name.replace('_', ' ')}: {row.demand}", further=" " * 11)
        for finding in row.findings[:MAX_FINDINGS]:
            say(f"{'':11}- {finding}", further=" " * 13)
        if row.outcome == "not tried":
            say(f"{'':11}because {row.not_tried}", further=" " * 11)
    say(counted_rows(rows))
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
    import numpy as np

    from simfl.reports.terminal import console, counting
    from simfl.runs.build import build
    from simfl.runs.folder.disk import write_text
    from simfl.scenario.load import load
    from simfl.studies.calibrate.kernels import Training
    from simfl.studies.calibrate.passes import calibrate
    from simfl.world.profiles import text

    if out is not None:
        check_place(out)
    more = []
    if scenario is not None:
        trainer = build(load(scenario, {"clock": "measured"})).trainer
        split, batch_size = trainer.split, trainer.sgd.batch_size
        tokens = 1 + int(np.asarray(split.x_train).max()) if split.tokens else 0
        kind = trainer.model, split.shape, split.classes, batch_size, trainer.device, tokens
        more.append(Training(*kind))
    with counting(console(stderr=True), "pass", passes) as done:
        profile = calibrate(passes, more, done)
    if out is None:
        print(text(profile), end="")
        return
    write_text(out, text(profile))
    for kind, (low, high) in profile["intervals"].items():
        print(f"{kind:<18}{profile['seconds'][kind]:<10.3g} s   95 %: {low:.3g} to {high:.3g}")
    print(f"{out}: name it as a scenario's profile, with clock: modelled")
