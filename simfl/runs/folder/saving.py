"""Saving of finished rounds every few seconds, and taking up an interrupted run again."""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from simfl.engine.checkpoints import Past
from simfl.engine.clocks import Clock, Key, Recorded, Recording, Spans
from simfl.errors import ClusterFailed
from simfl.runs.folder.result import RecordedUpdates, Result, write_recorded
from simfl.runs.folder.saved_rounds import Entry, Parts, Unfinished
from simfl.runs.folder.unfinished import discard
from simfl.runs.results.assumed import Assumed
from simfl.runs.results.round_summary import Measurement
from simfl.scenario.schema import Scenario
from simfl.trace import rows as trace
from simfl.trace.rows import Trace

EVERY_S = 2.0
SAVING_SHARE = 0.02
"""The most of a run that saving may take; beyond, it is put off."""
LINES_AT_ONCE = 1000
"""Of a trace, written by few calls and with little memory."""


@dataclass(frozen=True, slots=True)
class CheckpointArrays:
    """The state of a session at the end of a round (`engine.setup.RoundCheckpoint`), as arrays."""

    rows: int
    models: Mapping[int, NDArray[np.float32]]
    moments: NDArray[np.float64] | None
    running: tuple[tuple[Key, Spans], ...]


class Saver:
    """Saves the rounds of one protocol after the other in the folder of an unfinished run."""

    def __init__(self, own: Unfinished, every_s: float) -> None:
        self.own = own
        self.every_s = every_s
        self.beside: Mapping[str, str] = {}
        self.replaying = False
        """The rounds of the interrupted run are not done again yet."""
        self._point: CheckpointArrays | None = None

    def begin(self, scenario: Scenario, assumed: Assumed | None = None) -> Result:
        self.own.begin(scenario, assumed)
        return Result(scenario, assumed=assumed)

    def resume(self, scenario: Scenario) -> Result:
        """Resume an interrupted run, and return the result so far."""
        result = self.own.read(scenario)
        result.interrupted = False
        return result

    def is_done(self, name: str) -> bool:
        return name in self.own.entries and self.own.entries[name].done

    def past(self, name: str) -> Past:
        entry = self.own.entries.get(name)
        if entry is None:
            return Past()
        arrays = [np.load(self.own.part(name, part), allow_pickle=False) for part in entry.arrays]
        moments = None if entry.moments is None else arrays.pop()
        return Past(len(entry.measured), dict(zip(entry.models, arrays, strict=True)), moments)

    def clock(self, name: str, rows: Trace, then: Clock) -> Clock:
        return Recorded(Recording(rows, self.own.entries[name].running), rows.timed_by, then)

    def start(self, name: str, rows: Trace, training: str | None, anew: bool = False) -> None:
        """Expect the rounds of a protocol, with their trace.

        Args:
            anew: They replace those that are saved.
        """
        saved = self.own.entries.get(name)
        self._rows, self._replaced = rows, saved if anew else None
        self._first = Entry(protocol=name, training=training)
        self._measured = [] if saved is None or anew else [*saved.measured]
        self.replaying = not anew and saved is not None
        self._due_s = time.monotonic() + self.every_s
        self._kept, self._point = list[RecordedUpdates](), None

    def add(self, measurement: Measurement, kept: RecordedUpdates | None, point: CheckpointArrays) -> None:
        """Take in a finished round, and save it if that is due."""
        self._measured.append(measurement)
        self._point = point
        if kept is not None:
            self._kept.append(kept)
        if time.monotonic() >= self._due_s:
            self.save()

    def save(self) -> None:
        point = self._point
        if point is None:  # nothing new, or no protocol yet
            return
        since_s = time.monotonic()
        arrays: list[NDArray[Any]] = list(point.models.values())
        moments = None
        if point.moments is not None:
            moments = len(self._measured)
            arrays.append(point.moments)
        self._write(point.rows, arrays, models=tuple(point.models), moments=moments, running=point.running)
        now_s = time.monotonic()
        self._due_s = now_s + (max(self.every_s, (now_s - since_s) / SAVING_SHARE) if self.every_s else 0)

    def _write(self, until: int, arrays: Sequence[NDArray[Any]] = (), **state: Any) -> None:
        """Write a record: rows up to that one, arrays in the order of `Entry.arrays`, recorded updates."""
        # After an interrupt of a saving, what it wrote is known from the folder alone.
        saved = self.own.entries.get(self._first.protocol)
        anew = saved is self._replaced
        before = self._first if saved is None or anew else saved
        new = self._measured[len(before.measured) :]
        state |= {"rows": until, "measured": tuple(new), "beside": dict(self.beside)}
        entry = before.model_copy(update=state)
        head = () if before.rows else (trace.heading(entry.protocol, self._rows.timed_by),)
        rows = trace.row_lines(self._rows[before.rows : until])
        parts: Parts = {f"trace.{before.rows}": partial(_write_lines, chain(head, rows))}
        for kept in (k for k in self._kept if k.round >= len(before.measured)):
            parts[f"updates.{kept.round}"] = partial(write_recorded, kept)
        for name, array in zip(entry.arrays, arrays, strict=True):
            if name not in before.digests:
                parts[name] = partial(_write_array, array)
        self.own.save(entry, parts, set(before.arrays) - set(entry.arrays), anew)
        self._kept, self._point = [], None

    def end(self) -> None:
        self._write(len(self._rows), models=(), moments=None, running=(), done=True)

    def keep_whole(
        self, name: str, rows: Trace, measured: Sequence[Measurement], beside: Mapping[str, str] = {}
    ) -> None:
        """Save a protocol once all its rounds are there, with the texts of the run's further files."""
        self.start(name, rows, None, anew=True)
        self.beside = beside
        self._measured = [*measured]
        self.end()

    def finish(self, result: Result) -> None:
        result.write(self.own.run, self.own.trace())
        discard(self.own.run)

    def stop(self, result: Result, error: BaseException) -> None:
        """Write the files of the finished rounds when the run ends by an error or an interrupt."""
        if isinstance(error, OSError):  # not even saving may have come to its end
            result = self.own.read(result.scenario)
        else:
            self.save()
        # An interrupted run can be resumed, and one whose disk or memory was full or whose cluster failed;
        # others would fail again. Before the replay is over, the saved rounds are all that is there.
        passing = isinstance(error, OSError | MemoryError | ClusterFailed) or not isinstance(error, Exception)
        if any(result.measured.values()) and not (passing or self.replaying):
            self.finish(result)
        else:
            with suppress(OSError) if isinstance(error, OSError) else nullcontext():
                self.leave(result)

    def leave(self, result: Result) -> None:
        """Write the files of the finished rounds, for the run to be resumed; nothing stays without any."""
        if any(result.measured.values()):
            result.write(self.own.run, self.own.trace())
        else:
            discard(self.own.run)


def _write_lines(lines: Iterable[str], file: IO[bytes]) -> None:
    every = iter(lines)
    while content := "".join(islice(every, LINES_AT_ONCE)).encode():
        file.write(content)


def _write_array(array: NDArray[Any], file: IO[bytes]) -> None:
    np.save(file, array, allow_pickle=False)
