"""Run a study: every cell of a grid under every seed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from simfl.cli.common import FAILED, app, keeping, tell, tell_whose_code

if TYPE_CHECKING:
    from simfl.studies.sweep.backends import Backend
    from simfl.studies.sweep.run import Sweep


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
    backend: Annotated[Literal["loky", "dask", "ray"], typer.Option(help="What runs them.")] = "loky",
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
    if address is not None and backend == "loky":
        raise typer.BadParameter("goes with --backend dask or ray", param_hint="--address")

    from simfl.errors import need
    from simfl.studies.sweep import backends
    from simfl.studies.sweep.plan import make_plan
    from simfl.studies.sweep.run import Sweep
    from simfl.studies.sweep.store import Store

    backends.need(backend)
    if parquet:
        need("--parquet", "pyarrow.parquet")
    plan = make_plan(study)
    tell_whose_code()
    folder = out or Path("sweeps") / plan.name
    if folder.exists() and not folder.is_dir():
        raise typer.BadParameter(f"{folder} is a file, not a folder", param_hint="--out")
    state = Sweep(plan, Store(folder), keep_traces)
    with keeping(lambda: _kept(state)):
        stored = _perform(state, backend, jobs or state.at_once, address, parquet)
    _show(state, stored)
    if state.failures:
        raise typer.Exit(FAILED)


def _perform(state: Sweep, backend: Backend, jobs: int, address: str | None, parquet: bool) -> int:
    """Check and run the missing cells, and write the tables; return the number of cells that were stored."""
    from simfl.reports.terminal import console, counting
    from simfl.studies.sweep import tables
    from simfl.studies.sweep.plan import check

    errors, plan, store = console(stderr=True), state.plan, state.store
    new = [cell for key, cell in zip(state.keys, plan.cells, strict=True) if not store.has(key)]
    with counting(errors, f"{plan.name}: checking", len({cell.point for cell in new})) as watch:
        check(plan, new, watch)
    with store.locked():
        todo = state.missing(partial(tell, error=True))
        try:
            with counting(errors, plan.name, len(todo)) as watch:
                state.perform(todo, backend, jobs, address, watch)
            rows = list(tables.rows(state))
            columns = tables.columns(plan, rows)
            tables.write_table(store.folder / "sweep.csv", columns)
            tables.write_table(store.folder / "means.csv", tables.mean_columns(plan, tables.means(rows)))
            if parquet:
                from simfl.reports.parquet import write_parquet

                write_parquet(store.folder / "sweep.parquet", columns)
        finally:
            _failures(state)
    return len(set(state.keys)) - len(todo)


def _show(state: Sweep, stored: int) -> None:
    from simfl.reports import sweep as report
    from simfl.reports import terminal
    from simfl.studies.sweep import tables

    plan, console = state.plan, terminal.console()
    seeds = len({cell.seed for cell in plan.cells})
    report.show(console, plan.name, plan.points, tables.means(tables.rows(state)), seeds)
    for label, entries in tables.selections(state):
        tell(f"\n{label}".rstrip())
        console.print(terminal.participation(entries))
    cells, failures = len(set(state.keys)), len(state.failures)
    failed = f", {failures} failed" if failures else ""
    counts = f"{stored} were stored, {cells - stored - failures} run{failed}"
    tell(f"{cells} cells: {counts}. Written to {state.store.folder}")


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
            tell(f"failed: {state.plan.label(cell)}: {why.reason}", error=True)
    tell(f"{len(state.failures)} of {len(set(state.keys))} cells failed; details in {file}", error=True)


def _kept(state: Sweep) -> str:
    kept = sum(map(state.store.has, set(state.keys)))
    cells = f"; {kept} of {len(set(state.keys))} cells are kept in {state.store.folder}" if kept else ""
    return f"{cells}; the same command goes on from there"
