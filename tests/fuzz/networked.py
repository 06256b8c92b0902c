"""Scenarios from the network with names of files and modules: none opens or executes anything."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from simfl.errors import BadInput, RunFailed
from simfl.live.join import received
from simfl.live.live_protocol import prepared
from simfl.scenario.schema_shape import Shape
from tests.fuzz.attempt import Report, TimeUp, fault, timer
from tests.fuzz.audit import naming
from tests.fuzz.mutants import OWN, SEEDS, mutant, trees
from tests.fuzz.schema import WORDS, drawn, places
from tests.fuzz.schema import Path as Path_
from tests.fuzz.text import dump
from tests.fuzz.values import get

CANARY = "canary"
TEXT = "mutant"
CPU_S, WALL_S = 10.0, 30.0
SEEDED = (("rates", "csv"), ("tiny", "yaml"))
CODE = "import os\nos.environ['CANARY'] = 'sang'\nclass Bird: ...\n"
FILES = {"py": CODE, "up": "1\n"} | {end: (SEEDS / f"{name}.{end}").read_text() for name, end in SEEDED}
NAMES = tuple(f"{CANARY}.{end}" for end in ("py:Bird", "py", "npz", *(e for e in FILES if e != "py")))
SPELLED = ("", "", "module:", "file:", "recorded:", "!!python/name:")


@cache
def folder() -> Path:
    """Return a folder with files that nothing may open."""
    made = Path(tempfile.mkdtemp(prefix="simfl-canary-"))
    for end, text in FILES.items():
        (made / f"{CANARY}.{end}").write_text(text)
    np.savez(made / f"{CANARY}.npz", x=np.zeros((4, 2)), y=np.zeros(4, int))
    return made


def attempt(seed: int, number: int) -> Report:
    """Receive one scenario, and prepare it as `simfl join` would."""
    rng, begun = Random(f"network {seed} {number}"), time.monotonic()
    if rng.random() < 0.8:
        text, what = scenario(rng)
    else:
        text, what = mutant(seed, number).data.decode(errors="replace"), TEXT
    stage, key, detail = "refused", "", ""
    before, seen = Path.cwd(), list[str]()
    try:
        with timer(CPU_S, WALL_S), _inside(folder()), naming(CANARY) as seen:
            given = received(text)
            stage = "good"
            if what != TEXT:  # whatever else is wrong with a mutant, `attempt` looks at
                prepared(given)
    except (BadInput, RunFailed):
        pass
    except (Exception, TimeUp) as error:
        key, detail = fault(error, "network")
    finally:
        os.chdir(before)
    if seen:
        key, detail = f"network: {seen[0].split()[0]}", "\n".join(seen[:5])
    return Report(stage, what=f"{what}\n{text}", key=key, detail=detail, seconds=time.monotonic() - begun)


@contextmanager
def _inside(where: Path) -> Iterator[None]:
    os.chdir(where)
    yield


def scenario(rng: Random) -> tuple[str, str]:
    """Return a scenario's text with one or two names of files, and where they are."""
    tree = deepcopy(trees()[rng.choice(OWN)])
    done = []
    for _ in range(rng.choice((1, 1, 2))):
        path, annotation = rng.choice([*_targets(tree)])
        parent = get(tree, path[:-1])
        if isinstance(parent, dict | list):
            parent[path[-1]] = _naming(annotation, rng)
            done.append(".".join(map(str, path)))
    return dump(tree), ", ".join(done)


def _targets(tree: dict[str, Any]) -> Iterator[tuple[Path_, Any]]:
    """Yield each key, given or not, whose value has kinds or may be a text."""
    for place in places(tree):
        if place.path:
            yield place.path, place.annotation
        for key, annotation in place.missing.items() if isinstance(place.value, dict) else ():
            yield (*place.path, key), annotation


def _naming(annotation: Any, rng: Random) -> Any:
    """Return a value that fits a key, or nearly, with names of files where it has words."""
    kinds = Shape(annotation).kinds
    if not kinds or rng.random() < 0.3:
        return rng.choice((_spelled(rng), _named(drawn(annotation, rng), rng)))
    word = rng.choice([*kinds, "module", "module", "module"])
    return rng.choice((f"{word}:{_name(rng)}", {word: _name(rng)}, _named(drawn(annotation, rng), rng)))


def _named(value: Any, rng: Random) -> Any:
    """Put names of files where a drawn value has any word."""
    if isinstance(value, dict):
        return {key: _named(inner, rng) for key, inner in value.items()}
    if isinstance(value, list):
        return [_named(inner, rng) for inner in value]
    return _spelled(rng) if value in WORDS and rng.random() < 0.9 else value


def _spelled(rng: Random) -> str:
    return rng.choice(SPELLED) + _name(rng)


def _name(rng: Random) -> str:
    """Return a file's name, as it may be written where the process is in its folder."""
    where = rng.choice(("", "", "./", f"{folder()}/", f"../{folder().name}/"))
    return where + rng.choice(NAMES)
