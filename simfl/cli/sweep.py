"""Run a study: every cell of a grid under every seed."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simfl.cli.common import FAILED, app, interrupted, tell, tell_whose_code

if TYPE_CHECKING:
    from simfl.studies.sweep.plan import Plan
    from simfl.studies.sweep.run import Sweep


class Backends(StrEnum):
    """Where cells are run."""

    loky = "loky"
    dask = "dask"
    ray = "ray"


@app.command()
def sweep(
    study: Annotated[
        Path, typer.Argument(help="A study, YAML: base, set, cells, grid, seeds.", metavar="STUDY")
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where cells and tables go; sweeps/NAME unless given.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Cells at a time on this machine: as many as it has cores, measured ones 1."
        ),
    ] = None,
    backend: Annotated[Backends, typer.Option(help="What runs them.")] = Backends.loky,
    address: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Of a Dask scheduler or Ray cluster that is there.")
    ] = None,
    keep_traces: Annotated[bool, typer.Option("--keep-traces", help="Each cell keeps its trace.")] = False,
    parquet: Annotated[bool, typer.Option("--parquet", help="Write sweep.parquet too.")] = False,
) -> None:
    """Run what is missing of a study, keep each cell, print means and 95 % intervals over seeds.

    The same command goes on where a sweep was stopped: a cell is stored under its resolved scenario and the
    code's version, and is not run again.
    """
    if address is not None and backend is Backends.loky:
        raise typer.BadParameter("goes with --backend dask or ray", param_hint="--address")

    from simfl.errors import need
    from simfl.studies.sweep import backends
    from simfl.studies.sweep.plan import make_plan
    from simfl.studies.sweep.run import Sweep
    from simfl.studies.sweep.store import Store

    backends.need(backend.value)
    if parquet:
        need("--parquet", "pyarrow.parquet")
    plan = make_plan(study)
    tell_whose_code()
    folder = out or Path("sweeps") / plan.name
    if folder.exists() and not folder.is_dir():
        raise typer.BadParameter(f"{folder} is a file, not a folder", param_hint="--out")
    state = Sweep(plan, Store(folder), keep_traces)
    try:
        stored = _perform(state, backend, jobs or _at_a_time(plan), address, parquet)
    except KeyboardInterrupt:
        _say(f"Interrupted; {_kept(state)}")
        raise typer.Exit(interrupted()) from None
    _show(state, stored)
    if state.failures:
        raise typer.Exit(FAILED)


def _at_a_time(plan: Plan) -> int:
    """Cells on a measured clock would slow each other down."""
    from simfl.scenario.schema import Measured
    from simfl.studies.sweep.backends import cores

    return 1 if any(isinstance(cell.scenario.clock, Measured) for cell in plan.cells) else cores()


def _perform(state: Sweep, backend: Backends, jobs: int, address: str | None, parquet: bool) -> int:
    """Check and run what is missing, write the tables; how many cells were there before."""
    from simfl.errors import RunFailed
    from simfl.reports.terminal import console, counting
    from simfl.studies.sweep.plan import check

    errors, plan, store = console(stderr=True), state.plan, state.store
    new = [cell for key, cell in zip(state.keys, plan.cells, strict=True) if not store.has(key)]
    with counting(errors, f"{plan.name}: checking", len({cell.point for cell in new})) as watch:
        check(plan, new, watch)
    with store.locked():
        todo = state.missing(_say)
        try:
            with counting(errors, plan.name, len(todo)) as watch:
                state.perform(todo, backend.value, jobs, address, watch)
        except RunFailed:
            _failures(state)
            _say(_kept(state))
            raise
        _tables(state, parquet)
    return len(set(state.keys)) - len(todo)


def _tables(state: Sweep, parquet: bool) -> None:
    from simfl.reports.parquet import write_parquet
    from simfl.studies.sweep import tables

    folder, listed = state.store.folder, list(tables.rows(state))
    columns = tables.columns(state.plan, listed)
    tables.write_table(folder / "sweep.csv", columns)
    tables.write_table(folder / "means.csv", tables.mean_columns(state.plan, tables.means(listed)))
    if parquet:
        write_parquet(folder / "sweep.parquet", columns)
    _failures(state)


def _show(state: Sweep, stored: int) -> None:
    from simfl.reports import sweep as report
    from simfl.reports import terminal
    from simfl.studies.sweep import tables

    plan, console = state.plan, terminal.console()
    seeds = len({cell.seed for cell in plan.cells})
    means = tables.means(tables.rows(state))
    report.show(console, plan.name, plan.points, means, seeds)
    for label, entries in tables.selections(state):
        tell(f"\n{label}".rstrip())
        console.print(terminal.participation(entries))
    cells = len(set(state.keys))
    ran = cells - stored - len(state.failures)
    failed = f", {len(state.failures)} failed" if state.failures else ""
    tell(f"{cells} cells: {stored} were stored, {ran} run{failed}. Written to {state.store.folder}")


def _failures(state: Sweep) -> None:
    """List the cells that failed; their tracebacks go to a file."""
    from simfl.folder.result import atomic

    file = state.store.folder / "failures.txt"
    file.unlink(missing_ok=True)
    if not state.failures:
        return
    with atomic(file) as out:
        for cell, why in state.failures.values():
            out.write(f"{state.plan.label(cell)}: {why.reason}\n{why.details}\n")
            _say(f"failed: {state.plan.label(cell)}: {why.reason}")
    _say(f"{len(state.failures)} of {len(set(state.keys))} cells failed; details in {file}")


def _kept(state: Sweep) -> str:
    kept = sum(map(state.store.has, set(state.keys)))
    there = f"{kept} of {len(set(state.keys))} cells are kept in {state.store.folder}; " if kept else ""
    return f"{there}the same command goes on from there"


def _say(text: str) -> None:
    tell(text, error=True)
