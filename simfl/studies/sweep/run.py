"""Run what is missing of a sweep, and keep each cell as soon as it is done."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from typing import TYPE_CHECKING, Any, Literal

from joblib import cpu_count, delayed

from simfl.config.digests import Damaged
from simfl.errors import BadInput, RunFailed
from simfl.runs.folder.identity import code_version, scenario_key
from simfl.runs.folder.result import Result, breakdown, versions
from simfl.runs.results import frames
from simfl.runs.results.summary import Summary, read
from simfl.runs.simulation import run
from simfl.scenario.load import resolved_yaml
from simfl.scenario.schema import Scenario
from simfl.scenario.world import Measured
from simfl.studies.sweep import tables
from simfl.studies.sweep.backends import Backend, workers
from simfl.studies.sweep.plan import Cell, Plan
from simfl.studies.sweep.store import Store
from simfl.trace import rows as trace
from simfl.trace.text import write_csv

if TYPE_CHECKING:
    import pandas

TRACE = "trace.jsonl"
CELL_FILES = ("summary.json", "breakdown.csv", "resolved.yaml")

Done = tuple[dict[str, str], dict[str, Any]]
"""A cell that was run: its files, and `about`, which may differ from one run of it to the next."""


@dataclass(frozen=True)
class Failed:
    """A cell that failed: the reason in a line, and a traceback."""

    reason: str
    details: str


@dataclass(repr=False)
class Sweep:
    """The cells of a study, and those of them that are stored in a folder.

    Attributes:
        plan: the cells, and the values that vary.
        store: the folder.
        traces: a cell needs its trace, too.
        keys: the key of each cell, its folder's name.
        failures: key -> the cell, and why it failed.
        stored: cells that were stored before, and so were not run.
    """

    plan: Plan
    store: Store
    traces: bool = False
    keys: tuple[str, ...] = ()
    failures: dict[str, tuple[Cell, Failed]] = field(default_factory=dict)
    stored: int = 0

    def __post_init__(self) -> None:
        code = code_version()
        self.keys = tuple(scenario_key(cell.scenario, code) for cell in self.plan.cells)

    def __repr__(self) -> str:
        return f"Sweep({self.plan.name}, {len(self.keys)} cells, {len(self.failures)} failed)"

    @property
    def at_once(self) -> int:
        """Cells to run at a time: one on a measured clock, as they would slow each other down."""
        return 1 if any(isinstance(c.scenario.clock, Measured) for c in self.plan.cells) else int(cpu_count())

    def missing(self, warn: Callable[[str], None]) -> dict[str, Cell]:
        """Return the cells that are still to be run, by key; call `warn` for each that is damaged."""
        needed = (*CELL_FILES, TRACE) if self.traces else CELL_FILES
        out: dict[str, Cell] = {}
        for key, cell in zip(self.keys, self.plan.cells, strict=True):
            try:
                if key not in out and not self.store.verify(key, needed):
                    out[key] = cell
            except Damaged as why:
                warn(f"cell {key} ({self.plan.label(cell)}) is run again: {why.path.name} {why.problem}")
                out[key] = cell
        return out

    def kept(self) -> Iterator[tuple[Cell, str, Summary]]:
        """Yield cell, key and summary of each that did not fail, in the plan's order."""
        for key, cell in zip(self.keys, self.plan.cells, strict=True):
            if key not in self.failures:
                yield cell, key, read(self.store.cells / key / "summary.json")

    def to_pandas(self, table: Literal["sweep", "means", "failures"] = "means") -> pandas.DataFrame:
        """Return a table of the finished sweep as a data frame, with the columns of its CSV file.

        Raises:
            BadInput: pandas is not installed; or there is no such table.
        """
        make: dict[str, Callable[[], Mapping[str, Sequence[Any]]]] = {
            "sweep": lambda: tables.columns(self.plan, list(tables.rows(self))),
            "means": lambda: tables.mean_columns(self.plan, tables.means(tables.rows(self))),
            "failures": lambda: tables.failure_columns(self.plan, tables.failures(self)),
        }
        if table not in make:
            raise BadInput(f"to_pandas: table is {table!r}, expected {', '.join(make)}")
        return frames.frame(make[table]())

    def perform(
        self,
        todo: dict[str, Cell],
        backend: Backend = "loky",
        jobs: int = 1,
        address: str | None = None,
        watch: Callable[[int], None] = lambda done: None,
    ) -> None:
        """Run cells by `workers`, and write each that did not fail; the store is locked. watch: called with
        the number of cells that are done. RunFailed if the workers go away."""
        if not todo:
            return
        code = code_version()
        tasks = (delayed(work)(key, cell.scenario, code, self.traces) for key, cell in todo.items())
        with workers(backend, jobs, address) as parallel:
            for count, (key, outcome) in enumerate(_results(parallel, tasks), 1):
                if isinstance(outcome, Failed):
                    self.failures[key] = todo[key], outcome
                else:
                    self.store.write(key, *outcome)
                watch(count)


def _results(parallel: Callable[..., Any], tasks: Iterable[Any]) -> Iterator[tuple[str, Done | Failed]]:
    try:
        yield from parallel(tasks)
    except Exception as error:  # each backend has its own; what a cell raises comes back as `Failed`
        first = (str(error).splitlines() or [""])[0]
        raise RunFailed(f"the workers stopped: {type(error).__name__}: {first}") from error


def work(key: str, scenario: Scenario, code: str, traces: bool) -> tuple[str, Done | Failed]:
    """Run a cell, in a worker."""
    if code_version() != code:
        return key, Failed(f"the worker has simfl {code_version()}, not {code}", "")
    since_s = time.monotonic()
    try:
        result = run(scenario)
        files = _files(result, traces)
    except Exception as error:  # listed in the end; other cells go on
        return key, Failed(f"{type(error).__name__}: {error}", traceback.format_exc())
    took_s = round(time.monotonic() - since_s, 3)
    about = {"code": code, "versions": versions(), "training": result.training, "took_s": took_s}
    return key, (files, about)


def _files(result: Result, traces: bool) -> dict[str, str]:
    """Return the files of a cell by name: those of a run, without what is of this machine."""
    summary = result.summary
    summary["versions"] = {}  # these and `training` are in `about.json`
    for protocol in summary["protocols"].values():
        protocol["training"] = None
    table = StringIO()
    write_csv(table, breakdown(result.rounds))
    files = {
        "summary.json": json.dumps(summary, indent=2) + "\n",
        "breakdown.csv": table.getvalue(),
        "resolved.yaml": resolved_yaml(result.scenario),
    }
    if traces:
        files[TRACE] = "".join(trace.lines(result.traces))
    return files
