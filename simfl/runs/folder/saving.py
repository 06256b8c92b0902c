"""Saving of finished rounds every few seconds, and taking up an interrupted run again."""

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.config import digests
from simfl.engine.checkpoints import Past
from simfl.engine.clocks import Clock, Key, Recorded, Recording, Spans
from simfl.errors import BadInput, ClusterFailed
from simfl.runs.folder.journal import JOURNAL, TRACE, Entry, first_digest, updates_file
from simfl.runs.folder.result import Kept, Result, write_kept
from simfl.runs.folder.unfinished import Unfinished, discard
from simfl.runs.results.round_summary import Measurement
from simfl.scenario.schema import Scenario
from simfl.trace import rows as trace
from simfl.trace.rows import Trace

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
        self._chain = ""
        self._due_s = 0.0
        self.beside: Mapping[str, str] = {}
        self._forget()

    def _forget(self) -> None:
        self._new: list[Measurement] = []
        self._kept: list[Kept] = []
        self._point: Point | None = None

    def begin(self, scenario: Scenario) -> Result:
        self.own.begin(scenario)
        self._chain = first_digest(self.own.folder)
        return Result(scenario)

    def resume(self, scenario: Scenario) -> Result:
        """Take up an interrupted run, and return the result so far; BadInput if that cannot be."""
        if scenario.entropy == "os":
            why = "with entropy: os its masks cannot be made again"
            raise BadInput(f"{self.own.run} cannot be resumed: {why}")
        return self.resume_whole(scenario)

    def resume_whole(self, scenario: Scenario) -> Result:
        """Take up a run of which no protocol was interrupted: nothing has to be made again."""
        saved, result = self.own.read(scenario)
        self._entries, self._chain = saved.entries, saved.chain
        self._trace_size, self._journal_size = saved.trace_size, saved.journal_size
        result.interrupted = False
        return result

    def is_done(self, name: str) -> bool:
        return name in self._entries and self._entries[name].done

    def past(self, name: str) -> Past:
        entry = self._entries.get(name)
        if entry is None:
            return Past()
        arrays = [self.own.array(file) for file in entry.arrays]
        moments = None if entry.moments is None else arrays.pop()
        return Past(len(entry.measured), dict(zip(entry.models, arrays, strict=True)), moments)

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
        entry = self._entries[self._name]
        since_s = time.monotonic()
        arrays: list[NDArray[Any]] = list(point.models.values())
        moments = None
        if point.moments is not None:
            moments = len(entry.measured) + len(self._new)
            arrays.append(point.moments)
        state = {"models": tuple(point.models), "moments": moments, "running": point.running}
        files = entry.model_copy(update=state).arrays
        missing = [(file, a) for file, a in zip(files, arrays, strict=True) if file not in entry.digests]
        self._write(point.rows, {file: self.own.save_array(file, array) for file, array in missing}, **state)
        self.own.keep_only(files)
        now_s = time.monotonic()
        self._due_s = now_s + (max(self.every_s, (now_s - since_s) / SAVING_SHARE) if self.every_s else 0)

    def _write(self, until: int, arrays: Mapping[str, str] = {}, **state: Any) -> None:
        """Append the rows up to that one, and then a line to the journal. arrays: new files' digests."""
        name, own, before = self._name, self.own, self._entries[self._name]
        files = dict(arrays)
        for kept in self._kept:
            file = updates_file(name, kept.round)
            write_kept(own.folder / file, kept)
            files[file] = digests.of_file(own.folder / file)
        head = () if before.rows else (trace.heading(name, self._rows.timed_by),)
        rows = trace.row_lines(self._rows[before.rows : until])
        self._trace_size, digest = own.append(TRACE, self._trace_size, chain(head, rows))
        state |= {"size": self._trace_size, "rows": until, "trace_digest": digest}
        new = {**state, "measured": tuple(self._new), "digests": files, "beside": dict(self.beside)}
        line, self._chain = digests.chained(before.model_copy(update=new).model_dump_json(), self._chain)
        self._journal_size, _ = own.append(JOURNAL, self._journal_size, (line,))
        merged = {"measured": (*before.measured, *self._new), "digests": before.digests | files}
        self._entries[name] = before.model_copy(update={**state, **merged})
        self._forget()

    def end(self) -> None:
        self._write(len(self._rows), models=(), moments=None, running=(), done=True)

    def keep_whole(
        self, name: str, rows: Trace, measured: Sequence[Measurement], beside: Mapping[str, str] = {}
    ) -> None:
        """Save a protocol once all its rounds are there, with the texts of the run's further files."""
        self.start(name, rows, None)
        self.beside = beside
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
