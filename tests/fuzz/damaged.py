"""Damaged folders of runs: bits flipped, files cut, lines doubled and swapped, files gone or others.

What a command reads of a damaged folder is refused by a message, or is the same as that of the whole folder:
nothing damaged is taken for true.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

import simfl
from simfl.scenario.load import load
from simfl.simulation import Progress
from tests.fuzz.attempt import Report, TimeUp, fault, timer
from tests.fuzz.cli import Ended, command
from tests.fuzz.invariants import Broken
from tests.fuzz.mutants import SEEDS

CPU_S, WALL_S = 10.0, 20.0
DONE, HALF, AGAIN = "done", "half", "again"
GIVEN = {"payload": "real", "workers": 0, "record_updates": True}
COMMANDS: dict[str, tuple[str, tuple[str, ...], float]] = {
    "resume": (HALF, ("run", "--resume", HALF, "--no-progress"), 4),
    "recover": (HALF, ("report", HALF), 1),
    "report": (DONE, ("report", DONE), 2),
    "tables": (DONE, ("report", DONE, "--latex"), 1),
    "compare": (DONE, ("compare", DONE, "other"), 1),
    "privacy": (DONE, ("privacy", DONE), 0.5),
    "recorded": (
        DONE,
        ("run", "tiny.yaml", "--clock", f"recorded:{DONE}", "--out", AGAIN, "--no-progress"),
        1,
    ),
}
"""The folder that each reads, its arguments and its weight."""

RESULTS = ("*.json", "*.jsonl", "participation.csv", "breakdown.csv", "updates-*.npz")
WRITTEN_TO = {"resume": HALF, "recover": HALF, "recorded": AGAIN}


class Seen(NamedTuple):
    """What came of a command: what it printed, and the files of results that it wrote."""

    out: str
    files: dict[str, bytes]


# --- whole folders --------------------------------------------------------------------------------
@cache
def whole() -> Path:
    """Return a folder with a finished run, another one, and an interrupted run; made once a process."""
    made = Path(tempfile.mkdtemp(prefix="simfl-folders-"))
    shutil.copy(SEEDS / "tiny.yaml", made)
    tiny = load(made / "tiny.yaml", GIVEN)
    simfl.run(tiny, None, made / DONE)
    simfl.run(load(made / "tiny.yaml", GIVEN | {"seed": 2}), None, made / "other")
    rounds = 0

    def stop(progress: Progress) -> None:
        nonlocal rounds
        rounds += 1
        if rounds > 8:
            raise KeyboardInterrupt

    long = load(made / "tiny.yaml", GIVEN | {"rounds": 4, "learning.server": {"kind": "fedadam"}})
    with suppress(KeyboardInterrupt):
        simfl.run(long, None, made / HALF, stop, save_every_s=0)
    return made


@cache
def expected(name: str) -> Seen:
    """Return what a command shows and writes where nothing is damaged."""
    with tempfile.TemporaryDirectory(prefix="simfl-folder-") as folder:
        ended, seen = _read(name, Path(folder), lambda work: None)
    if ended.code != 0:
        raise Broken("whole", f"{name}: {ended}")
    return seen


def _read(name: str, work: Path, change: Callable[[Path], object]) -> tuple[Ended, Seen]:
    shutil.copytree(whole(), work, dirs_exist_ok=True)
    change(work)
    before = Path.cwd()
    os.chdir(work)
    try:
        with timer(CPU_S, WALL_S):
            ended = command(*COMMANDS[name][1])
    finally:
        os.chdir(before)
    if name not in WRITTEN_TO or ended.code:
        return ended, Seen(ended.out, {})
    paths = sorted(path for pattern in RESULTS for path in (work / WRITTEN_TO[name]).glob(pattern))
    return ended, Seen(ended.out, {path.name: path.read_bytes() for path in paths})


# --- damage ---------------------------------------------------------------------------------------
Damage = Callable[[Path, Random, list[Path]], object]


def flip(path: Path, rng: Random, files: list[Path]) -> None:
    data = bytearray(path.read_bytes() or b"\0")
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def digit(path: Path, rng: Random, files: list[Path]) -> None:
    data = bytearray(path.read_bytes())
    digits = [i for i, byte in enumerate(data) if chr(byte).isdigit()]
    if digits:
        data[rng.choice(digits)] = rng.choice(b"0123456789")
        path.write_bytes(data)


def cut(path: Path, rng: Random, files: list[Path]) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data) + 1)])


def empty(path: Path, rng: Random, files: list[Path]) -> None:
    path.write_bytes(b"")


def extend(path: Path, rng: Random, files: list[Path]) -> None:
    path.write_bytes(path.read_bytes() + rng.randbytes(rng.choice((1, 100))))


def zeros(path: Path, rng: Random, files: list[Path]) -> None:
    data = path.read_bytes()
    at = rng.randrange(len(data) + 1)
    path.write_bytes(data[:at] + bytes(len(data) - at))


def double(path: Path, rng: Random, files: list[Path]) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    at = rng.randrange(len(lines) + 1)
    path.write_bytes(b"".join([*lines[:at], *lines[max(0, at - 1) :]]))


def swap(path: Path, rng: Random, files: list[Path]) -> None:
    lines = path.read_bytes().splitlines(keepends=True) or [b""]
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[i], lines[j] = lines[j], lines[i]
    path.write_bytes(b"".join(lines))


def drop(path: Path, rng: Random, files: list[Path]) -> None:
    lines = path.read_bytes().splitlines(keepends=True) or [b""]
    del lines[rng.randrange(len(lines))]
    path.write_bytes(b"".join(lines))


def nest(path: Path, rng: Random, files: list[Path]) -> None:
    path.write_bytes(rng.choice((b"[", b'{"a":')) * 100_000)


def exchange(path: Path, rng: Random, files: list[Path]) -> None:
    """The contents of two files, each for the other's."""
    other = rng.choice(files)
    one, two = path.read_bytes(), other.read_bytes()
    path.write_bytes(two)
    other.write_bytes(one)


def remove(path: Path, rng: Random, files: list[Path]) -> None:
    path.unlink()


def replace(path: Path, rng: Random, files: list[Path]) -> None:
    """A folder, a pipe, a link to itself, or a file without permission, in a file's place."""
    path.unlink()
    rng.choice((Path.mkdir, os.mkfifo, lambda at: at.symlink_to(at), lambda at: at.touch(0)))(path)


DAMAGES: tuple[Damage, ...] = (
    flip, flip, digit, digit, cut, empty, extend, zeros, double, swap, drop, nest, exchange, remove, replace,
)  # fmt: skip


def attempt(seed: int, number: int) -> Report:
    """Damage a copy of a folder, read it with a command, and compare."""
    rng, begun = Random(f"folder {seed} {number}"), time.monotonic()
    name = rng.choices(list(COMMANDS), [weight for *_, weight in COMMANDS.values()])[0]
    stage, key, detail, what = "", "", "", f"{name}: "

    def change(work: Path) -> None:
        nonlocal what
        folder = work / COMMANDS[name][0]
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
        unfinished = [path for path in files if path.parent != folder]
        path, how = rng.choice([*files, *2 * unfinished]), rng.choice(DAMAGES)
        how(path, rng, files)
        what += f"{how.__name__} of {path.relative_to(work)}"

    with tempfile.TemporaryDirectory(prefix="simfl-folder-") as folder:
        try:
            good = expected(name)
            ended, seen = _read(name, Path(folder), change)
            stage = "refused" if ended.code else "the same"
            if ended.code not in (0, 1, 2):
                raise Broken("exit code", str(ended))
            if ended.code and COMMANDS[name][0] not in ended.err:
                raise Broken("without a place", ended.err[:500])
            if not ended.code and (wrong := _differences(name, seen, good)):
                raise Broken("taken for true", ", ".join(wrong))
        except Broken as broken:
            key, detail = f"folder: {broken.rule}", f"{what}\n{broken}"
        except (Exception, TimeUp) as error:
            key, detail = fault(error, "folder")
    return Report(stage, what=what, key=key, detail=detail, seconds=time.monotonic() - begun)


def _differences(name: str, seen: Seen, good: Seen) -> list[str]:
    """Return what differs from that of the whole folder; a result of before the command may stay."""
    before = whole() / WRITTEN_TO.get(name, "")
    wrong = [n for n in good.files if seen.files.get(n) not in (good.files[n], _content(before / n))]
    return wrong + ["what is printed"] * (seen.out != good.out and name != "resume")


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
