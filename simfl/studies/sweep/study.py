"""A study from its file to its tables: check its cells, run what is missing of them, and write tables."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from simfl.errors import BadInput, need
from simfl.reports.tables import write_parquet
from simfl.runs.folder.disk import atomic, write_text
from simfl.runs.simulation import refuse_in_a_loop
from simfl.studies.sweep import backends, tables
from simfl.studies.sweep.backends import Backend
from simfl.studies.sweep.page import page
from simfl.studies.sweep.picture import folder_names, picture
from simfl.studies.sweep.plan import check, make_plan
from simfl.studies.sweep.run import Sweep
from simfl.studies.sweep.store import Store

FAILURES = "failures.txt"
"""The file with the tracebacks of cells that failed."""

Watch = Callable[[str, int, int], None]
"""Called with a stage of the work, how much of it is done, and its total."""


def sweep(
    study: str | Path | Mapping[str, Any],
    out: str | Path | None = None,
    jobs: int | None = None,
    backend: Backend = "loky",
    address: str | None = None,
    keep_traces: bool = False,
    parquet: bool = False,
    watch: Watch | None = None,
) -> Sweep:
    """Run what is missing of a study, keep each cell in a folder, and write tables of means over seeds.

    A cell is stored under its resolved scenario and the code's version, and is not run again, so that the
    same call continues a sweep that was stopped. A cell that fails is in `failures` of the result, with the
    reason; the others are run.

    Args:
        study: a study's YAML file (base, set, cells, grid, seeds), a name such as `studies/which_links`, or a
            mapping of the same shape.
        out: the folder of cells and tables; `sweeps/NAME` unless given.
        jobs: cells at a time on this machine; one for each core unless given, under the measured clock one.
        backend: what runs them: `loky` (processes here), `dask` or `ray`.
        address: of a Dask scheduler or a Ray cluster that is running.
        keep_traces: store the trace of each cell.
        parquet: write `sweep.parquet` too.
        watch: called with a stage, the number of its cells that are done, and their total.

    Returns:
        The sweep: `to_pandas()` are its tables, `failures` the cells that failed, `stored` the number of
        those that were not run again, `store.folder` the folder.

    Raises:
        RuntimeError: an event loop runs, as in a notebook.
        BadInput: the study, one of its scenarios, the folder or an argument is bad; nothing was run.
        RunFailed: the workers went away. Finished cells are stored.

    >>> import simfl, tempfile
    >>> study = {
    ...     "base": "scenarios/tutorial.yaml",
    ...     "set": {"rounds": 1, "payload": "shadow", "protocols": ["secagg"]},
    ...     "grid": {"network.server.uplink_mbps": [100, 10_000]},
    ... }
    >>> swept = simfl.sweep(study, tempfile.mkdtemp(), jobs=1)
    >>> swept
    Sweep(study, 2 cells, 0 failed)
    >>> means = swept.to_pandas("means")
    >>> means[means.measure == "per_aggregate_s"].round(2)[["network.server.uplink_mbps", "mean"]]
        network.server.uplink_mbps  mean
    0                          100  0.41
    26                       10000  0.18
    """
    refuse_in_a_loop("sweep")
    state = open_sweep(study, out, keep_traces)
    complete(
        state, jobs, backend, address, parquet, watch or (lambda stage, done, total: None), warnings.warn
    )
    return state


def open_sweep(
    study: str | Path | Mapping[str, Any], out: str | Path | None = None, keep_traces: bool = False
) -> Sweep:
    """Return a study with what is stored of it, before anything runs; arguments as of `sweep`."""
    plan = make_plan(study)
    folder = Path("sweeps") / plan.name if out is None else Path(out)
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is a file, not a folder")
    return Sweep(plan, Store(folder), keep_traces)


def complete(
    state: Sweep,
    jobs: int | None,
    backend: Backend,
    address: str | None,
    parquet: bool,
    watch: Watch,
    warn: Callable[[str], None],
) -> None:
    """Check and run the missing cells, and write the tables.

    Args:
        state: the sweep, which takes the failures.
        jobs, backend, address, parquet, watch: as of `sweep`.
        warn: called with a line for each stored cell that is damaged, and so run again.
    """
    if address is not None and backend == "loky":
        raise BadInput("address: goes with backend dask or ray, not with loky")
    backends.need(backend)
    if jobs is not None and address is None:
        backends.check_jobs(jobs)
    if parquet:
        need("parquet", "pyarrow.parquet")
    plan, store = state.plan, state.store
    new = [cell for key, cell in zip(state.keys, plan.cells, strict=True) if not store.has(key)]
    points = len({cell.point for cell in new})
    check(plan, new, lambda done: watch(f"{plan.name}: checking", done, points))
    with store.locked():
        todo = state.missing(warn)
        state.stored = len(set(state.keys)) - len(todo)
        try:
            watch(plan.name, 0, len(todo))
            state.perform(
                todo, backend, jobs or state.at_once, address, lambda done: watch(plan.name, done, len(todo))
            )
            columns = tables.write(state)
            store.link(folder_names(state))
            write_text(store.folder / "report.html", page(picture(state)))
            if parquet:
                write_parquet(store.folder / "sweep.parquet", columns)
        finally:
            _write_failures(state)


def _write_failures(state: Sweep) -> None:
    file = state.store.folder / FAILURES
    file.unlink(missing_ok=True)
    if state.failures:
        with atomic(file) as out:
            for cell, failed in state.failures.values():
                out.write(f"{state.plan.label(cell)}: {failed.reason}\n{failed.details}\n")
