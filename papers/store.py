"""Results as files: a JSON file for each entry, which is complete or does not exist.

A file has the evidence and its origin: the command, its CPU seconds, the version of the code with a digest of
its sources, and the seed.
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
    """A stored result."""

    name: str
    """Name of the entry."""
    command: str
    """Command that gave the result."""
    seed: int
    code: str
    """Version of simfl."""
    cpu_s: float
    """CPU seconds of the process and its children."""
    evidence: Evidence


_SHAPE = TypeAdapter(Stored)


def path_of(place: Place, name: str) -> Path:
    """Return the file of an entry's result."""
    return place.results / f"{name}.json"


def perform(entry: Entry, place: Place) -> Stored:
    """Run an entry and store its result.

    An earlier result with the same evidence stays, so that a file does not change with the time of a run.
    """
    stored, earlier = run(entry, place), read(place, entry.name)
    content = json.dumps(asdict(stored), indent=1, allow_nan=False)
    if earlier is not None and _SHAPE.validate_json(content).evidence == earlier.evidence:
        return stored
    place.results.mkdir(parents=True, exist_ok=True)
    with atomic(path_of(place, entry.name)) as file:
        file.write(f"{content}\n")
    return stored


def run(entry: Entry, place: Place) -> Stored:
    """Run an entry without storing the result."""
    code, before = code_version(), _cpu_s()
    evidence = entry.run(place)
    return Stored(entry.name, entry.command, entry.seed, code, round(_cpu_s() - before, 1), evidence)


def read(place: Place, name: str) -> Stored | None:
    """Return an entry's result; None if it does not exist.

    Raises:
        BadInput: The file is not a result of this entry.
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
