"""Folders damaged at random: each command that reads one refuses it by file, or comes to the same as before.

    python -m tests.fuzz.damage --tries 2000 --seed 1

A try copies a folder, damages one of its files, and runs one of the commands that read it.

    refused     exit code 2, a message that names a file or folder of it, and no file was changed
    made again  a sweep's cell was named on stderr and run again, with the same outcome
    unchecked   SHA256SUMS is gone: stderr names the folder, the outcome is the same
    earlier     whole records are missing at the journal's end, as after a kill: an earlier state
    harmless    the outcome is the same: nothing reads what was damaged, or the command writes it anew

Anything else is a finding: taken for true, a traceback, a hang.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from simfl.digests import SUMS
from simfl.folder.journal import JOURNAL
from tests.fuzz.folders import Command, Kind, Outcome, copied, kinds, tree

LIMIT_S = 60.0
"""After which a command hangs."""


UNREAD = ("breakdown.csv", "metrics.jsonl", "participation.csv", "failures.csv", "about.json", "report.html")
UNREAD_SHARE = 0.1
"""Files that simfl writes for its user only; the share of damages that may be of these too."""


class HangError(BaseException):
    """A command takes too long; not an Exception, so that nothing on the way stops it."""


def _flip(content: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :]


def _digit(content: bytes, rng: random.Random) -> bytes:
    places = [place for place, byte in enumerate(content) if byte in b"0123456789"]
    place = rng.choice(places)
    return content[:place] + bytes([rng.choice(b"0123456789")]) + content[place + 1 :]


def _lines(change: Callable[[list[bytes], random.Random], None]) -> Callable[[bytes, random.Random], bytes]:
    def damage(content: bytes, rng: random.Random) -> bytes:
        lines = content.splitlines(keepends=True)
        change(lines, rng)
        return b"".join(lines)

    return damage


def _double(lines: list[bytes], rng: random.Random) -> None:
    place = rng.randrange(len(lines))
    lines.insert(rng.choice([place, rng.randrange(len(lines) + 1)]), lines[place])


def _swap(lines: list[bytes], rng: random.Random) -> None:
    one, two = rng.sample(range(len(lines)), 2)
    lines[one], lines[two] = lines[two], lines[one]


CHANGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
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


def damage(kind: Kind, folder: Path, rng: random.Random) -> tuple[str, str]:
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


def judged(kind: Kind, command: Command, expected: Outcome, rng: random.Random) -> tuple[str, str]:
    """Damage a copy and run a command on it; return the verdict, and what was done."""
    with copied(kind.folder) as folder:
        file, name = damage(kind, folder, rng)
        what = f"{kind.name}: {command.name}: {file}: {name}"
        before = tree(folder)
        records = _records(folder), _records(kind.folder)
        signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
        try:
            outcome = command.outcome(folder)
        except HangError:
            return "HANG", what
        except Exception:
            return "TRACEBACK", f"{what}\n{traceback.format_exc()}"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        verdict = _verdict(outcome, expected, folder, before, records)
        return verdict, f"{what}\n{outcome.code} {outcome.err}" if verdict.isupper() else what


def _verdict(
    outcome: Outcome,
    expected: Outcome,
    folder: Path,
    before: dict[str, str],
    records: tuple[list[bytes], list[bytes]],
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
    now, then = records
    if len(now) < len(then) and now == then[: len(now)]:
        return "earlier"
    return "TAKEN FOR TRUE"


def _records(folder: Path) -> list[bytes]:
    """Return the whole records of an unfinished run's journal."""
    journal = folder / "unfinished" / JOURNAL
    return journal.read_bytes().split(b"\n")[:-1] if journal.is_file() else []


def tries(home: Path, count: int, seed: int) -> Iterator[tuple[str, str, str]]:
    """Yield the kind of folder, the verdict and the description of each try."""

    def end(number: int, frame: FrameType | None) -> None:
        raise HangError

    previous = signal.signal(signal.SIGALRM, end)
    made = kinds(home)
    expected = dict[tuple[str, str], Outcome]()
    try:
        for number in range(count):
            rng = random.Random(f"{seed} {number}")
            kind = made[number % len(made)]
            command = rng.choice(kind.commands)
            key = kind.name, command.name
            if key not in expected:
                with copied(kind.folder) as folder:
                    expected[key] = command.outcome(folder)
                assert expected[key].code == 0, expected[key]
            yield kind.name, *judged(kind, command, expected[key], rng)
    finally:
        signal.signal(signal.SIGALRM, previous)


def run() -> int:
    """Run the command; return the exit code, 1 if there is a finding."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.damage", description=__doc__)
    parser.add_argument("--tries", type=int, default=2000, help="damages to try")
    parser.add_argument("--seed", type=int, default=1, help="other damages")
    given = parser.parse_args()
    counts, since = Counter[tuple[str, str]](), time.monotonic()
    with tempfile.TemporaryDirectory() as home:
        os.chdir(home)
        for kind, verdict, what in tries(Path(home), given.tries, given.seed):
            counts[kind, verdict] += 1
            if verdict.isupper():
                print(f"{verdict}: {what}", file=sys.stderr)
        os.chdir("/")
    verdicts = sorted({verdict for _, verdict in counts})
    for kind in dict.fromkeys(kind for kind, _ in counts):
        found = ", ".join(f"{counts[kind, v]} {v}" for v in verdicts if counts[kind, v])
        print(f"{kind:18} {found}")
    totals = Counter[str]()
    for (_, verdict), count in counts.items():
        totals[verdict] += count
    seconds = time.monotonic() - since
    print(f"seed {given.seed}, {given.tries} tries in {seconds:.0f} s: {dict(totals)}")
    return 1 if any(verdict.isupper() for verdict in totals) else 0


if __name__ == "__main__":
    sys.exit(run())
