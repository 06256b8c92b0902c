"""Folders damaged at random: each command that reads one refuses it by file, or comes to the same as before.

    python -m tests.fuzz --part folders --only 7

A try copies a folder, damages one of its files, and runs one of the commands that read it.

    refused     exit code 2, a message that names a file or folder of it, and no file was changed
    made again  a sweep's cell was named on stderr and run again, with the same outcome
    unchecked   SHA256SUMS is gone: stderr names the folder, the outcome is the same
    harmless    the outcome is the same: nothing reads what was damaged, or the command writes it anew

Anything else is a finding: taken for true, a traceback, a hang.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

from simfl.config.digests import SUMS
from simfl.runs.folder.saved_rounds import BASE
from tests.fuzz.attempt import Report, TimeUp, fault, timer
from tests.fuzz.folders import Command, Kind, Outcome, copied, kinds, tree

CPU_S, WALL_S = 20.0, 50.0
UNREAD = ("breakdown.csv", "metrics.jsonl", "participation.csv", "failures.csv", "about.json", "report.html")
UNREAD_SHARE = 0.1
"""Files that simfl writes for its user only; the share of damages that may be of these too."""


def _flip(content: bytes, rng: Random) -> bytes:
    place = rng.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :]


def _digit(content: bytes, rng: Random) -> bytes:
    places = [place for place, byte in enumerate(content) if byte in b"0123456789"]
    place = rng.choice(places)
    return content[:place] + bytes([rng.choice(b"0123456789")]) + content[place + 1 :]


def _lines(change: Callable[[list[bytes], Random], None]) -> Callable[[bytes, Random], bytes]:
    def damage(content: bytes, rng: Random) -> bytes:
        lines = content.splitlines(keepends=True)
        change(lines, rng)
        return b"".join(lines)

    return damage


def _double(lines: list[bytes], rng: Random) -> None:
    place = rng.randrange(len(lines))
    lines.insert(rng.choice([place, rng.randrange(len(lines) + 1)]), lines[place])


def _swap(lines: list[bytes], rng: Random) -> None:
    one, two = rng.sample(range(len(lines)), 2)
    lines[one], lines[two] = lines[two], lines[one]


CHANGES: dict[str, Callable[[bytes, Random], bytes]] = {
    "bit flipped": _flip,
    "digit changed": _digit,
    "cut": lambda content, rng: content[: rng.randrange(len(content))],
    "cut to nothing": lambda content, rng: b"",
    "line removed": _lines(lambda lines, rng: lines.pop(rng.randrange(len(lines))) and None),
    "line doubled": _lines(_double),
    "lines swapped": _lines(_swap),
    "bytes added": lambda content, rng: content + rng.randbytes(rng.randrange(1, 40)),
    "100,000 brackets": lambda content, rng: b"[" * 100_000,
}
"""Of a file's content; an IndexError or ValueError where a content has nothing of the kind."""


def damage(kind: Kind, folder: Path, rng: Random) -> tuple[str, str]:
    """Damage a file of a copy of a kind's folder; return its path and the damage."""
    files = list(tree(folder))
    read_back = [file for file in files if Path(file).name not in UNREAD]
    while True:
        file = rng.choice(files if rng.random() < UNREAD_SHARE else read_back)
        path = folder / file
        content = path.read_bytes()
        name = rng.choice([*CHANGES, *CHANGES, "removed", "a pipe", "of another run", "files swapped"])
        try:
            match name:
                case "removed":
                    path.unlink()
                case "a pipe":
                    path.unlink()
                    os.mkfifo(path)
                case "of another run":
                    if path.name == BASE:  # the whole of another run, which is undamaged
                        continue
                    path.write_bytes((kind.other / file).read_bytes())
                case "files swapped":
                    second = folder / rng.choice(files)
                    path.write_bytes(second.read_bytes())
                    second.write_bytes(content)
                    name = f"swapped with {second.name}"
                case _:
                    path.write_bytes(CHANGES[name](content, rng))
        except (IndexError, ValueError, OSError):
            continue
        if not path.is_file() or path.read_bytes() != content:
            return file, name


def judged(kind: Kind, command: Command, expected: Outcome, rng: Random) -> tuple[str, str]:
    """Damage a copy and run a command on it; return the verdict, and what was done."""
    with copied(kind.folder) as folder:
        file, name = damage(kind, folder, rng)
        what = f"{kind.name}: {command.name}: {file}: {name}"
        before = tree(folder)
        outcome = command.outcome(folder)
        verdict = _verdict(outcome, expected, folder, before)
        return verdict, f"{what}\n{outcome.code} {outcome.err}" if verdict.isupper() else what


def _verdict(
    outcome: Outcome,
    expected: Outcome,
    folder: Path,
    before: dict[str, str],
) -> str:
    if "Traceback" in outcome.err:
        return "TRACEBACK"
    if outcome.code == 2 and expected.code != 2:
        names = [Path(path).name for path in before] + [folder.name]
        if not outcome.err.strip() or not any(name in outcome.err for name in names):
            return "REFUSED WITHOUT A NAME"
        return "refused" if tree(folder) == before else "REFUSED AND CHANGED"
    if "is run again" in outcome.err and (outcome.code, outcome.files) == (expected.code, expected.files):
        return "made again"
    if outcome.same(expected):
        return "unchecked" if f"no {SUMS} in " in outcome.err else "harmless"
    return "TAKEN FOR TRUE"


@cache
def _kinds() -> list[Kind]:
    """Make a folder of each kind, once a process."""
    return kinds(Path(tempfile.mkdtemp(prefix="simfl-folders-")))


@cache
def _expected(kind: int, command: int) -> Outcome:
    """Return what a command comes to where nothing is damaged."""
    with copied(_kinds()[kind].folder) as folder:
        outcome = _kinds()[kind].commands[command].outcome(folder)
    assert outcome.code == 0, outcome
    return outcome


def attempt(seed: int, number: int) -> Report:
    """Damage a copy of a folder, read it with a command, and compare."""
    rng, before = Random(f"{seed} {number}"), Path.cwd()
    kind = number % len(_kinds())
    command = rng.randrange(len(_kinds()[kind].commands))
    expected, begun = _expected(kind, command), time.monotonic()
    stage, key, what = "", "", ""
    try:
        with timer(CPU_S, WALL_S):
            stage, what = judged(_kinds()[kind], _kinds()[kind].commands[command], expected, rng)
        key = f"folder: {stage.lower()}" if stage.isupper() else ""
    except (Exception, TimeUp) as error:
        key, what = fault(error, "folder")
    finally:
        os.chdir(before)
    return Report(stage, key=key, detail=what, what=what, seconds=time.monotonic() - begun)
