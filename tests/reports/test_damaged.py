"""However a run's folder is damaged, a report of it and a replay work, or end in one message."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from simfl.config.digests import SUMS
from simfl.errors import BadInput, RunFailed
from simfl.reports import perfetto, tables, terminal
from simfl.reports.advice import advise
from simfl.reports.model import run_report
from simfl.reports.page import page
from tests.engine.harness import ASYNC, SESSIONS, SIX, SYNC, run, script
from tests.reports.conftest import opened

SHADOW = {"payload": "shadow", "learning.dataset": {"kind": "synthetic", "train": 60, "test": 20}}
LOST = {"dropout": script((1, 1, "upload", "mid_send")), "selection": {"kind": "random", "users": 5}}
TWO = ["fedavg", "lightsecagg"]
RUNS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({**SIX, **SHADOW, **LOST, "rounds": 2, "privacy": {"T": 1, "D": 1, "U": 4}, "protocols": TWO}, SYNC),
    ({**SHADOW, "rounds": 3, "population.availability": SESSIONS, "protocols": ["fedbuff"]}, ASYNC),
]
"""A synchronous and an asynchronous run."""

VALUES: list[Any] = [
    [], {}, None, True, -1, 1.5, 0, 3, 10**18, 10**400, float("nan"), float("inf"), "", "x", "\ud800",
    "\x1b[31m", "x" * 100_000, [[]], [["upload", -5]], {"x": []},
]  # fmt: skip


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of these runs."""
    made = []
    for overrides, base in RUNS:
        made.append(tmp_path_factory.mktemp("run"))
        run(overrides, base, out=made[-1])
    return made


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) inside a value."""
    if not isinstance(value, list | dict):
        return []
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    return [(value, key) for key in keys] + [place for key in keys for place in places(value[key])]


def replace(rng: random.Random, values: Any) -> None:
    container, key = rng.choice(places(values))
    container[key] = rng.choice(VALUES)


def remove(rng: random.Random, values: Any) -> None:
    container, key = rng.choice(places(values))
    del container[key]


def add(rng: random.Random, values: Any) -> None:
    container, _ = rng.choice(places(values))
    if isinstance(container, dict):
        container[rng.choice(["x", "cause", "\ud800"])] = rng.choice(VALUES)
    else:
        container.append(rng.choice(VALUES))


def swap(rng: random.Random, values: Any) -> None:
    (one, key), (other, name) = rng.choices(places(values), k=2)
    one[key], other[name] = other[name], one[key]


def in_json(change: Callable[[random.Random, Any], None]) -> Callable[[random.Random, bytes], bytes]:
    """A change of a line of a trace, or of a summary."""

    def damage(rng: random.Random, content: bytes) -> bytes:
        lines = content.splitlines()
        if not content.startswith(b'{"row"'):
            values = json.loads(content)
            change(rng, values)
            return json.dumps(values).encode()
        number = rng.randrange(len(lines))
        values = json.loads(lines[number])
        change(rng, values)
        lines[number] = json.dumps(values).encode()
        return b"\n".join(lines)

    return damage


def flip(rng: random.Random, content: bytes) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]


def cut(rng: random.Random, content: bytes) -> bytes:
    return content[: rng.randrange(len(content))]


def insert(rng: random.Random, content: bytes) -> bytes:
    at = rng.randrange(len(content))
    return (
        content[:at] + rng.choice([b"\0", b"\xff", b"-", b"1e400", b"[" * 5000, b"\n", b'"']) + content[at:]
    )


def in_lines(change: Callable[[list[bytes], int, int], None]) -> Callable[[random.Random, bytes], bytes]:
    def damage(rng: random.Random, content: bytes) -> bytes:
        lines = content.splitlines()
        change(lines, rng.randrange(len(lines)), rng.randrange(len(lines)))
        return b"\n".join(lines)

    return damage


def exchange(lines: list[bytes], one: int, other: int) -> None:
    lines[one], lines[other] = lines[other], lines[one]


TEXTS = [
    flip, flip, cut, insert, in_lines(lambda lines, one, _: lines.pop(one) and None), in_lines(exchange),
    in_lines(lambda lines, one, other: lines.insert(other, lines[one])),
]  # fmt: skip
JSON = [in_json(replace), in_json(replace), in_json(replace), in_json(remove), in_json(add), in_json(swap)]


def report(folder: Path) -> None:
    """All that `simfl report` makes."""
    found = opened(folder)
    terminal.show(Console(file=StringIO()), run_report([found.summary], found.scenario.profile))
    for name, listed in found.rounds.items():
        assert advise(found.traces[name], listed).sentence
    page(found).encode()
    "".join(perfetto.lines(found, perfetto.choose(found))).encode()
    tables.latex(found).encode()


TRACE = "trace.jsonl"
FILES = [TRACE] * 3 + ["summary.json"] * 2 + ["resolved.yaml"]


def damaged(seed: int, folders: list[Path], copy: Path) -> int:
    """Damage a file of a copy of one of the runs, and return which run it is of."""
    rng = random.Random(seed)
    which, name = rng.randrange(len(folders)), rng.choice(FILES)
    shutil.copytree(folders[which], copy)
    (copy / SUMS).unlink()  # with it, all ends with the digest; an earlier simfl's folder has none
    content = (copy / name).read_bytes()
    damage = rng.choice(TEXTS + JSON * (name != "resolved.yaml"))
    (copy / name).write_bytes(damage(rng, content))
    return which


def refused(what: Callable[[], object]) -> bool:
    """Whether it ends in a message; any other error is a fault."""
    try:
        what()
    except (BadInput, RunFailed) as error:
        return bool(str(error))
    return False


@pytest.mark.ci
@pytest.mark.parametrize("part", [0, 1, *(pytest.param(k, marks=pytest.mark.slow) for k in range(2, 8))])
def test_damage_ends_in_one_message(part: int, folders: list[Path], tmp_path: Path) -> None:
    reports, replays = [], []
    for seed in range(part * 40, part * 40 + 40):
        copy = tmp_path / str(seed)
        overrides, base = RUNS[damaged(seed, folders, copy)]
        recorded = {**overrides, "clock": {"recorded": str(copy)}}
        reports.append(refused(partial(report, copy)))
        if (copy / TRACE).read_bytes() != (folders[base is ASYNC] / TRACE).read_bytes():
            replays.append(refused(partial(run, recorded, base)))
    assert True in reports
    assert True in replays
