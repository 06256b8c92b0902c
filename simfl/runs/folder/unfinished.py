"""The finished rounds of a run on disk: they stay however the run ends, and a resumed run goes on from them.

    DIR/unfinished/
        SHA256SUMS       of scenario.yaml and run.json; the journal's first record follows its digest
        scenario.yaml    the resolved scenario
        run.json         simfl's code, digests of the files that the scenario names
        trace.jsonl      rows, appended
        journal.jsonl    a line each time that finished rounds were saved: their measurements, and how far
                         trace.jsonl goes, with digests of all that was saved since the line before
        models/NAME.V.npy, models/NAME.moments.R.npy    what a resumed session needs, see `engine.checkpoints`
        updates/NAME.R.npz                              what `record_updates` asks for

Invariant: a line of the journal is written and synced last. So everything in its last whole line is there,
and everything beyond that (half a line, rows of a round that has not ended) is cut off when it is read.
Nothing is cut off before all digests were compared: what is damaged is refused, and stays as it is.
"""

import json
import os
import shutil
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from simfl.config import digests
from simfl.config.digests import SUMS, checked
from simfl.errors import BadInput, reason
from simfl.runs.folder import journal
from simfl.runs.folder.disk import atomic, make, sync, write
from simfl.runs.folder.identity import code_version, differences, identified
from simfl.runs.folder.journal import JOURNAL, TRACE, Saved, updates_file
from simfl.runs.folder.result import Result, read_kept
from simfl.scenario.load import load, look_at, resolved_yaml
from simfl.scenario.schema import Scenario
from simfl.trace import reader as trace_reader
from simfl.trace.rows import Trace

NAME = "unfinished"  # in a run's folder, as long as the run is not finished
PROTOCOL = "protocol"  # in that, of a live run: the rounds of the protocol in progress, as a run's folder
LINES_AT_ONCE = 1000  # of a trace: few calls, and little memory
SCENARIO, RUN = "scenario.yaml", "run.json"


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
        write(self.folder / SUMS, digests.manifest(self.folder, (SCENARIO, RUN)).encode())
        for name in (TRACE, JOURNAL):
            write(self.folder / name, b"")
        sync(self.folder)

    def _identity(self, scenario: Scenario) -> dict[str, Any]:
        return identified(scenario, code_version()) | ({"played": self.played} if self.played else {})

    def append(self, name: str, size: int, lines: Iterable[str]) -> tuple[int, str]:
        """Append to a file of `size` bytes (what lies beyond was written half).

        Returns:
            its new size, and the SHA-256 of the lines.
        """
        digest = sha256()
        with (self.folder / name).open("r+b") as file:
            file.truncate(size)
            file.seek(size)
            every = iter(lines)
            while content := "".join(islice(every, LINES_AT_ONCE)).encode():
                digest.update(content)
                file.write(content)
            file.flush()
            os.fsync(file.fileno())
            return file.tell(), digest.hexdigest()

    def save_array(self, file_name: str, array: Any) -> str:
        """Write an array to a file of this folder; return its digest."""
        path = self.folder / file_name
        with atomic(path, binary=True) as file:
            np.save(file, array, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        return digests.of_file(path)

    def keep_only(self, file_names: Container[str]) -> None:
        for path in (self.folder / "models").iterdir():
            if f"models/{path.name}" not in file_names:
                path.unlink()

    def read(self, scenario: Scenario) -> tuple[Saved, Result]:
        """Return what was saved and the result so far; cut off the rest. Damaged for damaged files."""
        saved = self.saved(scenario)
        entries, path = saved.entries, self.folder / TRACE
        for name, size in ((JOURNAL, saved.journal_size), (TRACE, saved.trace_size)):
            with _readable(self.folder / name):
                if (self.folder / name).stat().st_size > size:  # a file is as of now then, its run the latest
                    os.truncate(self.folder / name, size)
        traces = trace_reader.parse(path, scenario.population.users)
        result = Result(scenario, interrupted=True, beside=saved.beside)
        for name, entry in entries.items():
            rows = traces.get(name, Trace())
            result.traces[name], result.measured[name] = rows, list(entry.measured)
            if entry.training is not None:
                result.training[name] = entry.training
            files = (updates_file(name, index) for index in range(len(entry.measured)))
            result.updates[name] = [read_kept(self.folder / file) for file in files if file in entry.digests]
        return saved, result

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

    def saved(self, scenario: Scenario) -> Saved:
        """Return what the journal lists; Damaged where a file is not as it was written."""
        if not (self.folder / JOURNAL).exists():
            raise _nothing(self.run)
        return journal.read(self.folder, scenario.protocols)

    def array(self, file_name: str) -> Any:
        with _readable(self.folder / file_name):
            return np.load(self.folder / file_name, allow_pickle=False)

    def check(self, scenario: Scenario) -> None:
        """Refuse a scenario, or code, that this run was not started with, and damaged files.

        Raises:
            BadInput: names each difference, or the damaged file (Damaged).
        """
        need_digests(self.run)
        path = checked(self.folder / RUN)
        with _readable(path):
            before = json.loads(path.read_text(encoding="utf-8"))
        found = differences(before, json.loads(json.dumps(self._identity(scenario))))
        if found:
            what = "; ".join(line.removeprefix("scenario.") for line in found[:5])
            more = f"; and {len(found) - 5} more" if len(found) > 5 else ""
            raise BadInput(f"{self.run} cannot be resumed: it was another run: {what}{more}")
        self.saved(scenario)


def _nothing(run: Path) -> BadInput:
    return BadInput(f"{run}: {'no unfinished run is there' if run.is_dir() else 'there is no such folder'}")


def need_digests(run: Path) -> None:
    """Refuse an unfinished run that an earlier simfl saved, of which no digest tells if it is damaged."""
    if not (run / NAME / SUMS).exists():
        problem = f"{run / NAME} has no {SUMS}: an earlier simfl saved it, and damage would not be seen"
        raise BadInput(f"{problem}; resume it with that simfl, or run the scenario again in another folder")


def unfinished_scenario(run: Path) -> Scenario:
    """Load the scenario of the unfinished run in a folder; BadInput if there is none."""
    if not (run / NAME / JOURNAL).exists():
        raise _nothing(run)
    need_digests(run)
    return load(checked(run / NAME / SCENARIO))


def has_saved(run: Path) -> bool:
    """Return True if a folder holds finished rounds of an unfinished run."""
    journal, begun = run / NAME / JOURNAL, run / NAME / PROTOCOL
    return (journal.is_file() and journal.stat().st_size > 0) or (begun.is_dir() and has_saved(begun))


def recover(run: Path) -> None:
    """Write the files of a killed run, as far as it was saved. BadInput if it is at work or damaged."""
    if not has_saved(run):
        return
    with locked(run) as own:
        need_digests(run)
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
    except (OSError, ValueError, EOFError, RecursionError) as error:  # an EOFError would end click as Ctrl-D
        raise BadInput(f"{path}: cannot be read ({reason(error)})") from None
