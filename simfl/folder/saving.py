"""Saving of finished rounds every few seconds, and taking up an interrupted run again."""

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.engine.checkpoints import Past
from simfl.engine.clocks import Clock, Key, Recorded, Recording, Spans
from simfl.errors import BadInput, ClusterFailed
from simfl.folder.result import Kept, Result, write_kept
from simfl.folder.unfinished import JOURNAL, TRACE, Entry, Unfinished, discard
from simfl.results import trace
from simfl.results.round_summary import Measurement
from simfl.results.trace import Trace
from simfl.scenario.schema import Scenario

EVERY_S = 2.0
SAVING_SHARE = 0.02  # the most of a run that saving may take; beyond, it is put off


@dataclass(frozen=True, slots=True)
class Point:
    """The state of a session at the end of a round (`engine.setup.Standing`), as arrays."""

    rows: int
    models: Mapping[int, NDArray[np.float32]]
    moments: NDArray[np.float64] | None
    running: tuple[tuple[Key, Spans], ...]


class Saver:
    """Saves the rounds of one protocol after the other in the folder of an unfinished run."""

    def __init__(self, own: Unfinished, every_s: float) -> None:
        self.own = own
        self.every_s = every_s
        self._entries: dict[str, Entry] = {}
        self._trace_size = self._journal_size = 0
        self._due_s = 0.0
        self._forget()

    def _forget(self) -> None:
        self._new: list[Measurement] = []
        self._kept: list[Kept] = []
        self._point: Point | None = None

    def begin(self, scenario: Scenario) -> Result:
        self.own.begin(scenario)
        return Result(scenario)

    def resume(self, scenario: Scenario) -> Result:
        """Take up an interrupted run, and return the result so far; BadInput if that cannot be."""
        if scenario.entropy == "os":
            why = "with entropy: os its masks cannot be made again"
            raise BadInput(f"{self.own.run} cannot be resumed: {why}")
        return self.resume_whole(scenario)

    def resume_whole(self, scenario: Scenario) -> Result:
        """Take up a run of which no protocol was interrupted: nothing has to be made again."""
        self._entries, result = self.own.read(scenario)
        folder = self.own.folder
        self._trace_size, self._journal_size = ((folder / file).stat().st_size for file in (TRACE, JOURNAL))
        result.interrupted = False
        return result

    def is_done(self, name: str) -> bool:
        return name in self._entries and self._entries[name].done

    def past(self, name: str) -> Past:
        entry = self._entries.get(name)
        if entry is None:
            return Past()
        models = {version: self.own.array(f"{name}.{version}") for version in entry.models}
        moments = None if entry.moments is None else self.own.array(f"{name}.moments.{entry.moments}")
        return Past(len(entry.measured), models, moments)

    def clock(self, name: str, rows: Trace, then: Clock) -> Clock:
        return Recorded(Recording(rows, self._entries[name].running), rows.timed_by, then)

    def start(self, name: str, rows: Trace, training: str | None) -> None:
        """Expect the rounds of a protocol, with their trace."""
        if name not in self._entries:
            self._entries[name] = Entry(protocol=name, training=training)
        self._name, self._rows = name, rows
        self._due_s = time.monotonic() + self.every_s
        self._forget()

    def add(self, measurement: Measurement, kept: Kept | None, point: Point) -> None:
        """Take in a finished round, and save it if that is due."""
        self._new.append(measurement)
        self._point = point
        if kept is not None:
            self._kept.append(kept)
        if time.monotonic() >= self._due_s:
            self.save()

    def save(self) -> None:
        point = self._point
        if point is None:  # nothing new, or no protocol yet
            return
        name = self._name
        since_s = time.monotonic()
        arrays: dict[str, NDArray[Any]] = {f"{name}.{version}": m for version, m in point.models.items()}
        moments = None
        if point.moments is not None:
            moments = len(self._entries[name].measured) + len(self._new)
            arrays[f"{name}.moments.{moments}"] = point.moments
        for key, array in arrays.items():
            self.own.save_array(key, array)
        self._write(point.rows, models=tuple(point.models), moments=moments, running=point.running)
        self.own.keep_only(set(arrays))
        now_s = time.monotonic()
        self._due_s = now_s + (max(self.every_s, (now_s - since_s) / SAVING_SHARE) if self.every_s else 0)

    def _write(self, until: int, **state: Any) -> None:
        """Append the rows up to that one, and then a line to the journal."""
        name, own, before = self._name, self.own, self._entries[self._name]
        for kept in self._kept:
            write_kept(own.folder / "updates" / f"{name}.{kept.round}.npz", kept)
        head = () if before.rows else (trace.heading(name, self._rows.timed_by),)
        rows = trace.row_lines(self._rows[before.rows : until])
        self._trace_size = own.append(TRACE, self._trace_size, chain(head, rows))
        state |= {"size": self._trace_size, "rows": until}
        line = before.model_copy(update={**state, "measured": tuple(self._new)}).model_dump_json()
        self._journal_size = own.append(JOURNAL, self._journal_size, (line, "\n"))
        self._entries[name] = before.model_copy(update={**state, "measured": (*before.measured, *self._new)})
        self._forget()

    def end(self) -> None:
        self._write(len(self._rows), models=(), moments=None, running=(), done=True)

    def keep_whole(self, name: str, rows: Trace, measured: Sequence[Measurement]) -> None:
        """Save a protocol once all its rounds are there."""
        self.start(name, rows, None)
        self._new = list(measured)
        self.end()

    def finish(self, result: Result) -> None:
        result.write(self.own.run, self.own.folder / TRACE)
        discard(self.own.run)

    def stop(self, result: Result, error: BaseException) -> None:
        """Write the files of the finished rounds when the run ends by an error or an interrupt."""
        if isinstance(error, OSError):  # not even saving may have come to its end
            _, result = self.own.read(result.scenario)
        else:
            self.save()
        # An interrupted run can be resumed, and one whose disk or memory was full or whose cluster failed;
        # others would fail again.
        passing = isinstance(error, OSError | MemoryError | ClusterFailed) or not isinstance(error, Exception)
        if not any(result.measured.values()):
            discard(self.own.run)
        elif not passing:
            self.finish(result)
        else:
            with suppress(OSError) if isinstance(error, OSError) else nullcontext():
                result.write(self.own.run, self.own.folder / TRACE)
