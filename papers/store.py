"""Results as files: one JSON file an entry, which is whole or not there.

A file says what was found, and how: the command, the seconds of CPU time that it took, the version of the
code and a digest of its sources, the seed.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from papers.entry import Entry, Evidence, Place
from simfl.errors import BadInput
from simfl.runs.folder.disk import atomic
from simfl.runs.folder.identity import code_version


@dataclass(frozen=True)
class Stored:
    """What was found and how. cpu_s: of this process and those that it waited for."""

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
    """Run an entry and store what it came to. An earlier result stays until then, and after that if its
    evidence is the same: a file does not change with the seconds that a run took."""
    stored, earlier = run(entry, place), read(place, entry.name)
    content = json.dumps(asdict(stored), indent=1, allow_nan=False)
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


def read(place: Place, name: str) -> Stored | None:
    """An entry's result, None if there is none yet.

    Raises:
        BadInput: there is a file that is none.
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
