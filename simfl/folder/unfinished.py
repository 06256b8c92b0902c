"""The finished rounds of a run on disk: they stay however the run ends, and a resumed run goes on from them.

    DIR/unfinished/
        scenario.yaml    the resolved scenario
        run.json         simfl's code, digests of the files that the scenario names
        trace.jsonl      rows, appended
        journal.jsonl    a line each time that finished rounds were saved: their measurements, and how far
                         trace.jsonl goes
        models/NAME.V.npy, models/NAME.moments.R.npy    what a resumed session needs, see `engine.checkpoints`
        updates/NAME.R.npz                              what `record_updates` asks for

Invariant: a line of the journal is written and synced last. So everything in its last whole line is there,
and everything beyond that (half a line, rows of a round that has not ended) is cut off when it is read.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict

from simfl.engine.clocks import Key, Spans
from simfl.errors import BadInput, reason
from simfl.folder.disk import atomic, make, sync, write
from simfl.folder.identity import code_version, differences, identified
from simfl.folder.result import Result, read_kept
from simfl.results import trace_reader
from simfl.results.round_summary import Measurement
from simfl.results.trace import Trace
from simfl.scenario.load import load, look_at, resolved_yaml
from simfl.scenario.schema import Scenario

NAME = "unfinished"  # in a run's folder, as long as the run is not finished
PROTOCOL = "protocol"  # in that, of a live run: the rounds of the protocol in progress, as a run's folder
JOURNAL, TRACE, SCENARIO, RUN = "journal.jsonl", "trace.jsonl", "scenario.yaml", "run.json"


class Entry(BaseModel):
    """A line of the journal: a protocol's finished rounds."""

    model_config = ConfigDict(strict=True, frozen=True)

    protocol: str
    size: int = 0  # bytes of trace.jsonl
    rows: int = 0  # of the protocol's trace
    measured: tuple[Measurement, ...] = ()  # since its last line; once the journal is read, of all rounds
    training: str | None = None
    models: tuple[int, ...] = ()  # versions of the global model that are kept
    moments: int | None = None  # the round of those that are kept
    running: tuple[tuple[Key, Spans], ...] = ()  # steps in progress
    done: bool = False  # no more rounds are to come


class Unfinished:
    """The folder `unfinished` of a run's folder, whose lock is held. played: how, if not in virtual time."""

    played = ""

    def __init__(self, folder: Path) -> None:
        self.run = folder
        self.folder = folder / NAME

    def begin(self, scenario: Scenario) -> None:
        for name in ("models", "updates"):
            (self.folder / name).mkdir()
        write(self.folder / SCENARIO, resolved_yaml(scenario).encode())
        write(self.folder / RUN, json.dumps(self._identity(scenario)).encode())
        for name in (TRACE, JOURNAL):
            write(self.folder / name, b"")
        sync(self.folder)

    def _identity(self, scenario: Scenario) -> dict[str, Any]:
        return identified(scenario, code_version()) | ({"played": self.played} if self.played else {})

    def append(self, name: str, size: int, lines: Iterable[str]) -> int:
        """Append to a file of `size` bytes (what lies beyond was written half); return its new size."""
        with (self.folder / name).open("r+b") as file:
            file.truncate(size)
            file.seek(size)
            file.writelines(text.encode() for text in lines)
            file.flush()
            os.fsync(file.fileno())
            return file.tell()

    def save_array(self, name: str, array: Any) -> None:
        path = self.folder / "models" / f"{name}.npy"
        if not path.exists():
            with atomic(path, binary=True) as file:
                np.save(file, array, allow_pickle=False)
                file.flush()
                os.fsync(file.fileno())

    def keep_only(self, arrays: set[str]) -> None:
        for path in (self.folder / "models").iterdir():
            if path.stem not in arrays:
                path.unlink()

    def read(self, scenario: Scenario) -> tuple[dict[str, Entry], Result]:
        """Return the journal's entries and the result so far; cut off the rest. BadInput for bad files."""
        entries = self._journal(scenario)
        size = max((entry.size for entry in entries.values()), default=0)
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
            updates = (self.folder / "updates" / f"{name}.{i}.npz" for i in range(len(entry.measured)))
            result.updates[name] = [read_kept(path) for path in updates if path.exists()]
        return entries, result

    def so_far(self, scenario: Scenario) -> tuple[Result, Path | None]:
        """Return the result so far, and the file of its traces, if one file has them all.

        Of a live run, the rounds of the protocol in progress are in it.
        """
        _, result = self.read(scenario)
        if not has_saved(self.folder / PROTOCOL):
            return result, self.folder / TRACE
        _, begun = Unfinished(self.folder / PROTOCOL).read(scenario)
        result.traces = begun.traces | result.traces
        result.measured = begun.measured | result.measured
        return result, None

    def _journal(self, scenario: Scenario) -> dict[str, Entry]:
        path = self.folder / JOURNAL
        if not path.exists():
            raise _nothing(self.run)
        with _readable(path):
            text = path.read_bytes()
            whole = text[: text.rfind(b"\n") + 1]
            if len(whole) < len(text):  # or the file would be as of now, and its run the latest
                os.truncate(path, len(whole))
        entries: dict[str, Entry] = {}
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                new = Entry.model_validate_json(line)
                before = entries.get(new.protocol, new.model_copy(update={"measured": ()}))
                if new.protocol not in scenario.protocols:
                    raise ValueError(new.protocol)
            except ValueError:  # pydantic's own too
                raise BadInput(f"{path}:{number}: not a line of a run's journal") from None
            entries[new.protocol] = new.model_copy(update={"measured": (*before.measured, *new.measured)})
        return entries

    def array(self, name: str) -> Any:
        path = self.folder / "models" / f"{name}.npy"
        with _readable(path):
            return np.load(path, allow_pickle=False)

    def check(self, scenario: Scenario) -> None:
        """Refuse a scenario, or code, that this run was not started with; BadInput names each difference."""
        path = self.folder / RUN
        with _readable(path):
            before = json.loads(path.read_text(encoding="utf-8"))
        found = differences(before, json.loads(json.dumps(self._identity(scenario))))
        if found:
            what = "; ".join(line.removeprefix("scenario.") for line in found[:5])
            more = f"; and {len(found) - 5} more" if len(found) > 5 else ""
            raise BadInput(f"{self.run} cannot be resumed: it was another run: {what}{more}")


def _nothing(run: Path) -> BadInput:
    return BadInput(f"{run}: no unfinished run is there")


def unfinished_scenario(run: Path) -> Scenario:
    """Load the scenario of the unfinished run in a folder; BadInput if there is none."""
    path = run / NAME / SCENARIO
    if not path.is_file():
        raise _nothing(run)
    return load(path)


def has_saved(run: Path) -> bool:
    """Return True if a folder holds finished rounds of an unfinished run."""
    journal, begun = run / NAME / JOURNAL, run / NAME / PROTOCOL
    return (journal.is_file() and journal.stat().st_size > 0) or (begun.is_dir() and has_saved(begun))


def recover(run: Path) -> None:
    """Write the files of a killed run, as far as it was saved. BadInput if it is at work or damaged."""
    if not has_saved(run):
        return
    with locked(run) as own:
        result, traced = own.so_far(look_at(own.folder / SCENARIO))
        if any(result.measured.values()):
            result.write(run, traced)


@contextmanager
def locked(run: Path) -> Iterator[Unfinished]:
    """Lock the unfinished part of a run's folder; BadInput if it is in use, or nothing is unfinished."""
    if not (run / NAME).is_dir():
        raise _nothing(run)
    with _lock(run):
        yield Unfinished(run)


@contextmanager
def taken(run: Path) -> Iterator[Unfinished]:
    """Make, try and lock a folder for a new run, and remove it if unused. BadInput if it cannot be taken."""
    made = make(run)
    try:
        with _lock(run):
            own = Unfinished(run)
            if has_saved(run):
                remedy = f"go on with it (simfl run --resume {run}), or remove {own.folder}"
                raise BadInput(f"{run} holds an unfinished run: {remedy}, or choose another folder")
            for path in (*run.glob(".*.writing"), *own.folder.glob("*/.*.writing")):
                path.unlink(missing_ok=True)  # names that `atomic` gives, half-written by a killed run
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
    if not path.exists():  # its holder has just finished, and removed it
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
    """Remove the unfinished part of a run, its lock last."""
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


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except BadInput:
        raise
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read ({reason(error)})") from None
