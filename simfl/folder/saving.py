"""When finished rounds are saved, and how a run that was interrupted is taken up again.

Rounds are saved every `every_s` seconds, so that whatever ends a run costs it its last seconds. Saving is put
off where it would take more than `SHARE` of the run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from simfl.engine.checkpoints import Past
from simfl.engine.clocks import Clock, Key, Measured, Recorded, Recording, Spans
from simfl.errors import BadInput
from simfl.folder.result import Kept, Result
from simfl.folder.unfinished import JOURNAL, TRACE, Entry, Unfinished, discard, line
from simfl.results import trace
from simfl.results.summary import Measurement
from simfl.results.trace import Trace
from simfl.scenario.schema import Scenario

EVERY_S = 2.0
SHARE = 0.02

_RUNNING = TypeAdapter(tuple[tuple[Key, Spans], ...])


@dataclass(frozen=True, slots=True)
class Point:
    """Where a session stands at the end of a round (`engine.world.Standing`), as arrays."""

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
        self._size = self._told = 0
        self._due_s = 0.0
        self._forget()

    def _forget(self) -> None:
        self._new: list[Measurement] = []
        self._kept: list[Kept] = []
        self._point: Point | None = None

    # -- at the beginning
    def begin(self, scenario: Scenario) -> Result:
        """Start a new run."""
        self.own.begin(scenario)
        return Result(scenario)

    def resume(self, scenario: Scenario) -> Result:
        """Take up an interrupted run: the result so far.

        Raises:
            BadInput: its files are not what a run leaves, or its secrets were the operating system's.
        """
        if scenario.entropy == "os":
            raise BadInput(
                f"{self.own.run} cannot be resumed: with entropy: os its masks cannot be made again"
            )
        self._entries, result = self.own.read(scenario)
        self._size, self._told = ((self.own.folder / file).stat().st_size for file in (TRACE, JOURNAL))
        result.interrupted = False
        return result

    def is_done(self, name: str) -> bool:
        """Whether all rounds of a protocol are finished."""
        return name in self._entries and self._entries[name].done

    def past(self, name: str) -> Past:
        """A protocol's finished rounds, for its session."""
        entry = self._entries.get(name)
        if entry is None:
            return Past()
        models = {version: self.own.array(f"{name}.{version}") for version in entry.models}
        moments = None if entry.moments is None else self.own.array(f"{name}.moments.{entry.moments}")
        return Past(len(entry.measured), models, moments)

    def clock(self, name: str, rows: Trace) -> Clock:
        """The clock of a protocol that was measured so far."""
        try:
            running = _RUNNING.validate_python(self._entries[name].running)
        except ValidationError:
            raise BadInput(f"{self.own.folder}: the steps in progress of {name} cannot be read") from None
        return Recorded(Recording(rows, running), then=Measured())

    # -- on the way
    def start(self, name: str, rows: Trace, training: str | None) -> None:
        """The rounds of a protocol follow, with their trace."""
        if name not in self._entries:
            self._entries[name] = Entry(training=training)
        self._name, self._rows = name, rows
        self._due_s = time.monotonic() + self.every_s
        self._forget()

    def add(self, measurement: Measurement, kept: Kept | None, point: Point) -> None:
        """A round is finished; it is saved if that is due."""
        self._new.append(measurement)
        self._point = point
        if kept is not None:
            self._kept.append(kept)
        if time.monotonic() >= self._due_s:
            self.save()

    def save(self) -> None:
        """Save the rounds of which this has not been done yet."""
        point = self._point
        if point is None:
            return
        since_s = time.monotonic()
        rounds = len(self._entries[self._name].measured) + len(self._new)
        arrays: dict[str, NDArray[Any]] = {
            f"{self._name}.{version}": model for version, model in point.models.items()
        }
        if point.moments is not None:
            arrays[f"{self._name}.moments.{rounds}"] = point.moments
        for key, array in arrays.items():
            self.own.save_array(key, array)
        self._write(
            point.rows,
            models=list(point.models),
            moments=None if point.moments is None else rounds,
            running=list(point.running),
        )
        self.own.only(set(arrays))
        now_s = time.monotonic()
        self._due_s = now_s + (max(self.every_s, (now_s - since_s) / SHARE) if self.every_s else 0)

    def _write(self, until: int, **told: Any) -> None:
        """Append the rows up to that one, and then a line to the journal."""
        name, own, before = self._name, self.own, self._entries[self._name]
        for kept in self._kept:
            own.save_updates(name, kept)
        rows = trace.row_lines(self._rows[before.rows : until])
        head = () if before.rows else (trace.heading(name),)
        self._size = own.append(TRACE, self._size, chain(head, rows))
        entry = replace(before, rows=until, measured=[*before.measured, *self._new], **told)
        text = line(name, self._size, self._new, entry)
        self._told = own.append(JOURNAL, self._told, (text,))
        self._entries[name] = entry
        self._forget()

    # -- at the end
    def end(self) -> None:
        """All rounds of the protocol are finished."""
        self._write(len(self._rows), models=[], moments=None, running=[], done=True)

    def finish(self, result: Result) -> None:
        """The run is finished: write its files; nothing is unfinished any more."""
        self._write_and_discard(result, finished=True)

    def stop(self, result: Result, error: BaseException) -> None:
        """The run ends by an error or an interrupt: write the files of what it finished.

        It can be resumed if it was interrupted, or if the disk or the memory was full. What failed by itself
        would fail again.
        """
        if isinstance(error, OSError):  # not even saving may have come to its end
            _, result = self.own.read(result.scenario)
        else:
            self.save()
        finished = any(result.measured.values())
        passing = isinstance(error, OSError | MemoryError) or not isinstance(error, Exception)
        if not passing or not finished:
            self._write_and_discard(result, finished)
            return
        with suppress(OSError) if isinstance(error, OSError) else nullcontext():
            result.write(self.own.run, self.own.folder / TRACE)

    def _write_and_discard(self, result: Result, finished: bool) -> None:
        if finished:
            result.write(self.own.run, self.own.folder / TRACE)
        discard(self.own.run)
