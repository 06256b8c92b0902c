"""What a run has finished so far, on disk: whatever ends it leaves that, and a resumed run goes on from it.

    DIR/unfinished/
        scenario.yaml    the resolved scenario
        run.json         simfl's code, digests of the files that the scenario names
        trace.jsonl      rows, appended
        journal.jsonl    a line each time that finished rounds were saved: their measurements, and how far
                         trace.jsonl goes
        models/NAME.V.npy, models/NAME.moments.R.npy    what a resumed session needs, see `engine.checkpoints`
        updates/NAME.R.npz                              what `record_updates` asks for

Invariant: a line of the journal is written and synced last. So what its last whole line tells of is there,
and whatever lies beyond that (half a line, rows of a round that has not ended) is cut off when it is read.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from simfl.errors import BadInput
from simfl.folder.disk import make, reason, sync, write
from simfl.folder.identity import code_version, differences, identified
from simfl.folder.result import Kept, Result, atomic, read_kept, write_kept
from simfl.results import strict_json, trace_reader
from simfl.results.summary import Measurement
from simfl.results.trace import Trace
from simfl.scenario.load import load, look_at, resolved_yaml
from simfl.scenario.schema import Scenario

NAME = "unfinished"
"""The folder in a run's folder, which is there as long as the run is not finished."""

JOURNAL, TRACE, SCENARIO, RUN = "journal.jsonl", "trace.jsonl", "scenario.yaml", "run.json"


@dataclass
class Entry:
    """A protocol's finished rounds, as the journal has them.

    rows: of its trace. done: no more rounds are to come. models: versions of the global model that are
    kept; moments: the round of those that are kept. running: steps in progress, (key, spans).
    """

    rows: int = 0
    measured: list[Measurement] = field(default_factory=list)
    training: str | None = None
    models: list[int] = field(default_factory=list)
    moments: int | None = None
    running: list[Any] = field(default_factory=list)
    done: bool = False


class Unfinished:
    """The folder `unfinished` of a run's folder, whose lock is held."""

    def __init__(self, folder: Path) -> None:
        self.run = folder
        self.folder = folder / NAME

    # -- writing
    def begin(self, scenario: Scenario) -> None:
        """Start anew."""
        for name in ("models", "updates"):
            (self.folder / name).mkdir()
        write(self.folder / SCENARIO, resolved_yaml(scenario).encode())
        about = {"code": code_version(), "scenario": identified(scenario)}
        write(self.folder / RUN, json.dumps(about).encode())
        for name in (TRACE, JOURNAL):
            write(self.folder / name, b"")
        sync(self.folder)

    def append(self, name: str, size: int, lines: Iterable[str]) -> int:
        """Append to the trace or to the journal, which has `size` bytes (what lies beyond was written half).
        Returns the new size, when it will last."""
        with (self.folder / name).open("r+b") as file:
            file.truncate(size)
            file.seek(size)
            file.writelines(text.encode() for text in lines)
            file.flush()
            os.fsync(file.fileno())
            return file.tell()

    def save_array(self, name: str, array: Any) -> None:
        """Write an array to `models`, unless it is there."""
        path = self.folder / "models" / f"{name}.npy"
        if not path.exists():
            with atomic(path, binary=True) as file:
                np.save(file, array, allow_pickle=False)
                file.flush()
                os.fsync(file.fileno())

    def save_updates(self, name: str, kept: Kept) -> None:
        """Write the recorded updates of a round."""
        write_kept(self.folder / "updates" / f"{name}.{kept.round}.npz", kept)

    def only(self, arrays: set[str]) -> None:
        """Keep no other arrays in `models`."""
        for path in (self.folder / "models").iterdir():
            if path.stem not in arrays:
                path.unlink()

    # -- reading
    def read(self, scenario: Scenario) -> tuple[dict[str, Entry], Result]:
        """What the journal tells of, and the result so far; cuts off whatever lies beyond.

        Raises:
            BadInput: the files are not what a run leaves.
        """
        entries, size = self._journal(scenario)
        path = self.folder / TRACE
        with _readable(path):
            if path.stat().st_size < size:
                raise BadInput(f"{path}: {path.stat().st_size} bytes, and {JOURNAL} tells of {size}")
            os.truncate(path, size)
        traces = trace_reader.read(path, scenario.population.users)
        result = Result(scenario, interrupted=True)
        for name, entry in entries.items():
            rows = traces.get(name, Trace())
            if len(rows) != entry.rows:
                raise BadInput(f"{path}: {len(rows)} rows of {name}, and {JOURNAL} tells of {entry.rows}")
            result.traces[name], result.measured[name] = rows, list(entry.measured)
            if entry.training is not None:
                result.training[name] = entry.training
            result.updates[name] = self._updates(name, len(entry.measured))
        return entries, result

    def _journal(self, scenario: Scenario) -> tuple[dict[str, Entry], int]:
        path = self.folder / JOURNAL
        if not path.exists():
            raise BadInput(f"{self.run}: no unfinished run is there")
        with _readable(path):
            text = path.read_bytes()
            whole = text[: text.rfind(b"\n") + 1]
            os.truncate(path, len(whole))
        entries: dict[str, Entry] = {}
        size = 0
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                told = strict_json.parse(line.decode())
                name, size, new = str(told.pop("protocol")), int(told.pop("size")), told.pop("measured")
                before = entries.get(name, Entry()).measured
                entries[name] = Entry(**told, measured=[*before, *(Measurement(**m) for m in new)])
                if name not in scenario.protocols:
                    raise ValueError(name)
            except (ValueError, KeyError, TypeError, AttributeError):
                raise BadInput(f"{path}:{number}: not a line of a run's journal") from None
        return entries, size

    def array(self, name: str) -> Any:
        """An array of `models`."""
        path = self.folder / "models" / f"{name}.npy"
        with _readable(path):
            return np.load(path, allow_pickle=False)

    def _updates(self, name: str, rounds: int) -> list[Kept]:
        found = (self.folder / "updates" / f"{name}.{index}.npz" for index in range(rounds))
        return [read_kept(path) for path in found if path.exists()]

    def check(self, scenario: Scenario) -> None:
        """Hold a scenario, and simfl itself, to what this run was started with.

        Raises:
            BadInput: names each difference.
        """
        path = self.folder / RUN
        with _readable(path):
            about = json.loads(path.read_text(encoding="utf-8"))
        now = {"code": code_version(), "scenario": json.loads(json.dumps(identified(scenario)))}
        found = differences(about, now)
        if found:
            what = "; ".join(line.removeprefix("scenario.") for line in found[:5])
            more = f"; and {len(found) - 5} more" if len(found) > 5 else ""
            raise BadInput(f"{self.run} cannot be resumed: it was another run: {what}{more}")


def unfinished_scenario(run: Path) -> Scenario:
    """The scenario of the unfinished run in a folder.

    Raises:
        BadInput: there is none.
    """
    path = run / NAME / SCENARIO
    if not path.is_file():
        raise BadInput(f"{run}: no unfinished run is there")
    return load(path)


def recover(run: Path) -> None:
    """Write the files of a run that was killed, as far as it was saved; nothing if none is unfinished.

    Raises:
        BadInput: it is still at work, or its files are not what a run leaves.
    """
    journal = run / NAME / JOURNAL
    if not journal.is_file() or not journal.stat().st_size:
        return
    with locked(run) as own:
        _, result = own.read(look_at(own.folder / SCENARIO))
        if any(result.measured.values()):
            result.write(run, own.folder / TRACE)


@contextmanager
def locked(run: Path) -> Iterator[Unfinished]:
    """The unfinished part of a run's folder, with nobody else at it; it must be there.

    Raises:
        BadInput: another run is at work there, or nothing is unfinished.
    """
    folder = run / NAME
    if not folder.is_dir():
        raise BadInput(f"{run}: no unfinished run is there")
    with _lock(run):
        yield Unfinished(run)


@contextmanager
def taken(run: Path) -> Iterator[Unfinished]:
    """A folder for a new run: made if need be, tried, and locked until the end. What is not used is removed.

    Raises:
        BadInput: it cannot be written, another run is at work there, or one is unfinished.
    """
    made = make(run)
    try:
        with _lock(run):
            own = Unfinished(run)
            journal = own.folder / JOURNAL
            if journal.exists() and journal.stat().st_size:
                raise BadInput(
                    f"{run} holds an unfinished run: go on with it (simfl run --resume {run}), or remove "
                    f"{own.folder}, or choose another folder"
                )
            _clean(run)
            _empty(own.folder)
            yield own
    finally:
        for folder in made:  # only where it is empty
            with suppress(OSError):
                folder.rmdir()


@contextmanager
def _lock(run: Path) -> Iterator[None]:
    path = run / NAME / ".lock"
    lock = FileLock(path, timeout=0)
    busy = f"{run}: another run is at work here: wait for it, or choose another folder"
    try:
        path.parent.mkdir(exist_ok=True)
        lock.acquire()
    except Timeout:
        raise BadInput(busy) from None
    except (OSError, ValueError, NotImplementedError) as error:
        raise BadInput(f"{run} cannot be written: {reason(error)}") from None
    if not path.exists():  # who held it has just finished, and removed it
        lock.release()
        raise BadInput(busy)
    try:
        yield
    finally:
        with suppress(OSError):
            if {p.name for p in path.parent.iterdir()} == {".lock"}:
                discard(run)
        lock.release()


def discard(run: Path) -> None:
    """Remove what is unfinished of a run, its lock last."""
    folder = run / NAME
    (folder / JOURNAL).unlink(missing_ok=True)  # first: without it nothing is unfinished
    _empty(folder)
    (folder / ".lock").unlink(missing_ok=True)
    with suppress(OSError):  # somebody waits for the lock
        folder.rmdir()


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != ".lock":
            path.unlink()


def _clean(run: Path) -> None:
    """Remove what a killed run left half-written: names that `atomic` gives."""
    for path in (*run.glob(".*.writing"), *(run / NAME).glob("*/.*.writing")):
        path.unlink(missing_ok=True)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except BadInput:
        raise
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read ({reason(error)})") from None


def line(name: str, size: int, new: list[Measurement], entry: Entry) -> str:
    """A line of the journal. size: of trace.jsonl; new: measurements since the last line."""
    told = {**vars(entry), "measured": [asdict(m) for m in new]}
    return json.dumps({"protocol": name, "size": size, **told}, separators=(",", ":")) + "\n"
