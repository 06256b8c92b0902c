"""Results as files: one JSON file an entry, which is whole or not there.

A file holds the evidence and its origin: the command, its seconds of CPU time, the version of the code and a
digest of its sources, the seed.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from papers.entry import Entry, Evidence, Place
from simfl.errors import BadInput
from simfl.runs.folder.disk import atomic
from simfl.runs.folder.identity import code_version


@dataclass(frozen=True)
class Stored:
    """A result and its origin.

    Attributes:
        name: The entry's.
        command: The command that made it.
        seed: The seed of the entry's own draws.
        code: The version of simfl, with a digest of its sources.
        cpu_s: CPU time of this process and of those that it waited for [s].
        evidence: The cells and charts.
    """

    name: str
    command: str
    seed: int
    code: str
    cpu_s: float
    evidence: Evidence


_SHAPE = TypeAdapter(Stored)


def path_of(place: Place, name: str) -> Path:
    """The file of an entry's result."""
    return place.results / f"{name}.json"


def perform(entry: Entry, place: Place) -> Stored:
    """Run an entry and store its result. An earlier result stays until then, and after that if its
    evidence is the same: a file does not change with the seconds that a run took."""
    stored, earlier = kept(entry, place) or run(entry, place), read(place, entry.name)
    content = json.dumps(asdict(stored), indent=1, allow_nan=False)
    if place.kept is not None:
        file_kept = _kept_file(place.kept, entry)
        file_kept.parent.mkdir(parents=True, exist_ok=True)
        with atomic(file_kept) as file:
            file.write(f"{content}\n")
    if earlier is not None and _SHAPE.validate_json(content).evidence == earlier.evidence:
        return stored
    place.results.mkdir(parents=True, exist_ok=True)
    with atomic(path_of(place, entry.name)) as file:
        file.write(f"{content}\n")
    return stored


def run(entry: Entry, place: Place) -> Stored:
    """Run an entry, and store nothing."""
    code, before = code_version(), _cpu_s()
    evidence = entry.run(place)
    return Stored(entry.name, entry.command, entry.seed, code, round(_cpu_s() - before, 1), evidence)


def kept(entry: Entry, place: Place) -> Stored | None:
    """The kept result of an entry by this very code, its entries and scenarios; None without one."""
    if place.kept is None or not (file := _kept_file(place.kept, entry)).is_file():
        return None
    return _SHAPE.validate_json(file.read_bytes())


def _kept_file(folder: Path, entry: Entry) -> Path:
    return folder / "entries" / f"{entry.name}-{_digest()}.json"


@cache
def _digest() -> str:
    """A digest of all that decides an entry's result."""
    home = Path(__file__).parents[1]
    files = sorted((*(home / "papers").rglob("*.py"), *(home / "scenarios").rglob("*.yaml")))
    digest = sha256(code_version().encode())
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def read(place: Place, name: str) -> Stored | None:
    """Read an entry's result; None before its first run.

    Raises:
        BadInput: the file is no result.
    """
    path = path_of(place, name)
    try:
        stored = _SHAPE.validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise BadInput(f"{path}: not a result: {where}: {first['msg']}") from None
    if stored.name != name:
        raise BadInput(f"{path}: the result of {stored.name!r}, not of {name!r}")
    return stored


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
