"""Run what is missing of a sweep, and keep each cell as soon as it is done."""

import json
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

from joblib import cpu_count, delayed

from simfl.config.digests import Damaged
from simfl.errors import RunFailed
from simfl.runs.folder.identity import code_version, scenario_key
from simfl.runs.folder.result import Result, breakdown, versions
from simfl.runs.results.summary import Summary, read
from simfl.runs.simulation import run
from simfl.scenario.load import resolved_yaml
from simfl.scenario.schema import Scenario
from simfl.scenario.world import Measured
from simfl.studies.sweep.backends import Backend, workers
from simfl.studies.sweep.plan import Cell, Plan
from simfl.studies.sweep.store import Store
from simfl.trace import rows as trace
from simfl.trace.text import write_csv

TRACE = "trace.jsonl"
CELL_FILES = ("summary.json", "breakdown.csv", "resolved.yaml")

Done = tuple[dict[str, str], dict[str, Any]]
"""A cell that was run: its files, and `about`, which may differ from one run of it to the next."""


@dataclass(frozen=True)
class Failed:
    """A cell that failed: the reason in a line, and a traceback."""

    reason: str
    details: str


@dataclass
class Sweep:
    """A plan and its store. keys: the cells' folders; failures: folder -> its cell and why it failed."""

    plan: Plan
    store: Store
    traces: bool = False
    keys: tuple[str, ...] = ()
    failures: dict[str, tuple[Cell, Failed]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        code = code_version()
        self.keys = tuple(scenario_key(cell.scenario, code) for cell in self.plan.cells)

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
