"""The journal of an unfinished run: a record each time that finished rounds were saved.

Invariant: a record follows the one before it (`digests.chained`) and has digests of all that was saved with
it: the rows of the trace, arrays, recorded updates. So one changed byte in any of these files is found.
"""

from collections.abc import Container
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from simfl.config import digests
from simfl.config.digests import SUMS, Damaged
from simfl.engine.clocks import Key, Spans
from simfl.runs.results.round_summary import Measurement

JOURNAL, TRACE = "journal.jsonl", "trace.jsonl"


class Entry(BaseModel):
    """A line of the journal: a protocol's finished rounds."""

    model_config = ConfigDict(strict=True, frozen=True)

    protocol: str
    """Its name in the scenario."""
    size: int = 0
    """Bytes of trace.jsonl."""
    trace_digest: str = ""
    """SHA-256 of the bytes of trace.jsonl since the journal's line before."""
    rows: int = 0
    """Rows of the protocol's trace."""
    measured: tuple[Measurement, ...] = ()
    """Rounds since the protocol's last line; once the journal is read, all of its rounds."""
    training: str | None = None
    """The way in which cohorts are trained."""
    models: tuple[int, ...] = ()
    """Versions of the global model that are kept."""
    moments: int | None = None
    """The round of the optimiser's moments that are kept."""
    running: tuple[tuple[Key, Spans], ...] = ()
    """Steps in progress."""
    done: bool = False
    """All rounds are finished."""
    digests: dict[str, str] = {}
    """SHA-256 of the files in models/ and updates/ that were written since the protocol's last line; once the
    journal is read, since its first."""
    beside: dict[str, str] = {}
    """Texts of the run's further files, by name (`Result.beside`)."""

    @property
    def arrays(self) -> list[str]:
        """Files that a resumed session needs, in the order of `models`, the moments last."""
        moments = [] if self.moments is None else [f"moments.{self.moments}"]
        return [array_file(f"{self.protocol}.{version}") for version in (*self.models, *moments)]


def array_file(name: str) -> str:
    return f"models/{name}.npy"


def updates_file(protocol: str, index: int) -> str:
    return f"updates/{protocol}.{index}.npz"


@dataclass
class Saved:
    """The journal as it was read."""

    journal_size: int
    """Bytes of its whole lines."""
    chain: str
    """The digest of its last record."""
    entries: dict[str, Entry] = field(default_factory=dict)
    """By protocol; each with the rounds and digests of all its lines."""
    trace_parts: list[tuple[int, str]] = field(default_factory=list)
    """Of each line, the size of trace.jsonl and the digest of its bytes since the line before."""
    beside: dict[str, str] = field(default_factory=dict)
    """Texts of the run's further files, by name."""

    @property
    def trace_size(self) -> int:
        return self.trace_parts[-1][0] if self.trace_parts else 0

    def add(self, new: Entry) -> None:
        before = self.entries.get(new.protocol, Entry(protocol=new.protocol))
        merged = {"measured": (*before.measured, *new.measured), "digests": before.digests | new.digests}
        self.entries[new.protocol] = new.model_copy(update=merged)
        self.trace_parts.append((new.size, new.trace_digest))
        self.beside = new.beside or self.beside


def read(folder: Path, protocols: Container[str]) -> Saved:
    """Return what the journal lists, after a look at each file that it names; nothing is changed.

    Args:
        folder: the folder `unfinished` of a run.
        protocols: the scenario's.

    Raises:
        Damaged: a file is not as it was written; it names the file, and its line or array.
    """
    path = folder / JOURNAL
    content = digests.read_bytes(path)
    size = content.rfind(b"\n") + 1
    saved = Saved(size, first_digest(folder))
    for number, line in enumerate(content[:size].split(b"\n")[:-1], 1):
        record = digests.unchained(line, saved.chain)
        new = None if record is None else _entry(record[0])
        if record is None or new is None or new.protocol not in protocols:
            problem = "it was changed, or lines before it were removed, doubled or swapped"
            raise _damaged(folder, f"{JOURNAL}:{number}", problem)
        saved.chain = record[1]
        saved.add(new)
    _check_trace(folder, saved)
    for entry in saved.entries.values():
        updates = [file for file in entry.digests if file.startswith("updates/")]
        for file in (*updates, *([] if entry.done else entry.arrays)):
            if digests.of_file(folder / file) != entry.digests.get(file):
                raise _damaged(folder, file, f"its SHA-256 is not that in {JOURNAL}")
    return saved


def first_digest(folder: Path) -> str:
    """Return the digest that the first record follows: of the scenario and the code that the run is of."""
    return digests.of_file(folder / SUMS)


def _entry(text: bytes) -> Entry | None:
    try:
        return Entry.model_validate_json(text)
    except ValidationError:
        return None


def _check_trace(folder: Path, saved: Saved) -> None:
    """Compare the trace with the digests of its parts."""
    digests.need_regular(folder / TRACE)
    line = 1
    with (folder / TRACE).open("rb") as file:
        for size, digest in saved.trace_parts:
            part = file.read(size - file.tell())
            last = line + part.count(b"\n") - 1
            if digests.of_bytes(part) != digest:
                problem = f"the SHA-256 of lines {line} to {last} is not that in {JOURNAL}"
                raise _damaged(folder, TRACE, problem)
            line = last + 1


def _damaged(folder: Path, file: str, problem: str) -> Damaged:
    remedy = "restore it from a copy, or run the scenario again in another folder; nothing was changed here"
    return Damaged(folder / file, f"not as it was written: {problem}", remedy)
