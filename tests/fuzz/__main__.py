"""The command: cases of each part, a table at the end; exit code 1 if anything was found."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.fuzz import commands, damage, findings, networked, talks
from tests.fuzz.attempt import CPU_S, Report, attempt
from tests.fuzz.mutants import Mutant, mutant
from tests.fuzz.workers import Case, Job, Worker, attempts, own_cache

PARTS: dict[str, Callable[[int, int], Report]] = {
    "received": networked.attempt,
    "talks": talks.attempt,
    "folders": damage.attempt,
    "commands": commands.attempt,
}
"""Beside loads and runs; each takes a seed and a number."""
CASES = {"received": 5_000, "talks": 2_000, "folders": 2_000, "commands": 1_000}
WAITING = 3
"""Conversations that a job holds at once: they wait more than they work."""
NICE = 10
"""Of all other parts, which run beside conversations: their waits are of real time."""
PROGRESS_S = 10.0
SHRINK_S = 40.0
"""For each kind of finding."""
SHORT_S = 5.0
"""For what takes too long, while it is shrunk."""
SHOWN = 20
"""Numbers of a kind of finding that are shown."""


@dataclass
class Tally:
    """What came of all attempts so far."""

    loads: int = 0
    good: int = 0
    refused: int = 0
    runs: int = 0
    ends: dict[str, Counter[str]] = field(default_factory=dict)
    """How cases ended, by part."""
    found: dict[str, list[int]] = field(default_factory=dict)
    first: dict[str, tuple[str, Report]] = field(default_factory=dict)
    """The part and the first report of each kind of finding."""
    slowest: dict[str, tuple[float, int]] = field(default_factory=dict)
    largest: tuple[int, int] = (0, -1)

    def add(self, number: int, report: Report, part: str = "loads") -> None:
        """Count one case's report."""
        if part == "loads":
            self.loads += 1
            self.good += report.good
            self.refused += bool(report.refusal)
            self.runs += report.ran
            self.largest = max(self.largest, (report.peak_bytes, number))
        else:
            self.ends.setdefault(part, Counter())[(report.key and "found") or report.stage] += 1
        self.slowest[part] = max(self.slowest.get(part, (0.0, -1)), (report.seconds, number))
        if report.key:
            self.found.setdefault(report.key, []).append(number)
            self.first.setdefault(report.key, (part, report))

    def line(self) -> str:
        """Where it stands."""
        count = sum(map(len, self.found.values()))
        parts = "".join(f", {ends.total()} {part}" for part, ends in self.ends.items())
        return f"{self.loads} loads, {self.runs} runs{parts}, {count} findings of {len(self.found)} kinds"

    def table(self, files: dict[str, Path]) -> Iterator[str]:
        """What is told at the end."""
        yield f"loads      {self.loads}: {self.good} good, {self.refused} refused"
        yield f"runs       {self.runs}"
        for part, ends in self.ends.items():
            counts = ", ".join(f"{count} {end}" for end, count in ends.most_common())
            yield f"{part:10} {ends.total()}: {counts}"
        for part, (seconds, number) in self.slowest.items():
            yield f"slowest    {seconds:.1f} s ({part}, number {number})"
        yield f"largest    {self.largest[0] / 1e9:.2f} GB more (mutant {self.largest[1]})"
        yield f"findings   {sum(map(len, self.found.values()))} of {len(self.found)} kinds"
        for key, numbers in sorted(self.found.items(), key=lambda item: -len(item[1])):
            listed = ", ".join(map(str, numbers[:SHOWN])) + ", ..." * (len(numbers) > SHOWN)
            where = f"{self.first[key][0]} {listed}; {files.get(key, 'not written')}"
            yield f"{len(numbers):6} x  {key} ({where})"


def main() -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--loads", type=int, default=20_000, help="mutants to load and build")
    parser.add_argument("--runs", type=int, default=5_000, help="the first so many good ones are run")
    for part, count in CASES.items():
        parser.add_argument(f"--{part}", type=int, default=count, help=f"cases of tests/fuzz/{_file(part)}")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--seed", type=int, default=1, help="other mutants")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case of each part")
    parser.add_argument("--only", type=int, help="this case alone: its text, and what comes of it")
    parser.add_argument(
        "--part", choices=["loads", *PARTS], default="loads", help="of which --only is a case"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/fuzz"), help="where findings go")
    given = parser.parse_args()
    with own_cache():
        if given.only is None:
            return _all(given)
        return (_only_mutant if given.part == "loads" else _only)(given.seed, given.only, given.part)


def _file(part: str) -> str:
    return f"{PARTS[part].__module__.rpartition('.')[2]}.py"


def _all(given: argparse.Namespace) -> int:
    tally, begun, told = Tally(), time.monotonic(), 0.0

    def cases(*parts: str) -> Iterator[Case]:
        for part in parts:
            for number in range(given.first, given.first + getattr(given, part)):
                if part == "loads":
                    chosen = mutant(given.seed, number)
                    yield part, number, partial(attempt, chosen, tally.runs < given.runs, CPU_S)
                else:
                    yield part, number, partial(PARTS[part], given.seed, number)

    working = cases(*(part for part in ("loads", *PARTS) if part != "talks"))
    queues = (working, given.jobs, NICE), (cases("talks"), WAITING * given.jobs if given.talks else 0, 0)
    for part, number, report in attempts(*queues):
        if report.key and report.key not in tally.found:
            print(f"seed {given.seed}, {part}, number {number}: {report.short}", file=sys.stderr)
        tally.add(number, report, part)
        if time.monotonic() > told + PROGRESS_S:
            told = time.monotonic()
            print(f"{told - begun:6.0f} s  {tally.line()}", file=sys.stderr)
    files = _written(given, tally)
    print(f"seed       {given.seed}, {time.monotonic() - begun:.0f} s")
    print("\n".join(tally.table(files)))
    return 1 if tally.found else 0


def _written(given: argparse.Namespace, tally: Tally) -> dict[str, Path]:
    """Write a file for the first case of each kind of finding; a mutant is shrunk."""
    files: dict[str, Path] = {}
    worker: Worker | None = None
    for index, (key, numbers) in enumerate(tally.found.items(), 1):
        part, report = tally.first[key]
        path = given.out / f"finding-{index}-{findings.slug(key)}{'.yaml' if part == 'loads' else '.txt'}"
        if part == "loads":
            whole, worker = mutant(given.seed, numbers[0]), worker or Worker()
            words = f"{key}\nseed {given.seed}, mutant {numbers[0]}: {whole.what}\n{report.detail}"
            findings.write(path, findings.shrink(whole, _does_the_same(worker, key), SHRINK_S), words)
        else:
            again = f"python -m tests.fuzz --seed {given.seed} --part {part} --only {numbers[0]}"
            path.parent.mkdir(parents=True, exist_ok=True)
            text = f"{key}\n{again}\n{report.what}\n{report.detail}\n"
            path.write_text(text, encoding="utf-8", errors="backslashreplace")
        files[key] = path
        print(f"written to {path}", file=sys.stderr)
    if worker is not None:
        worker.stop()
    return files


def _does_the_same(worker: Worker, key: str) -> Callable[[Mutant], bool]:
    cpu_s = SHORT_S if "TimeUp" in key else CPU_S
    runs = key.startswith("run")

    def same(smaller: Mutant) -> bool:
        return worker.attempt(partial(attempt, smaller, runs, cpu_s)).key == key

    return same


def _only_mutant(seed: int, number: int, part: str) -> int:
    chosen = mutant(seed, number)
    report = _attempted(partial(attempt, chosen, True, CPU_S))
    print(chosen.data.decode(errors="backslashreplace"))
    print(f"# seed {seed}, mutant {number}: {chosen.what}")
    for text in (*chosen.sets, *report.refusal.splitlines(), *report.detail.splitlines()):
        print(f"# {text}".encode(errors="backslashreplace").decode())
    print(f"# {report.stage}, good: {report.good}, ran: {report.ran}, {report.seconds:.2f} s; {report.key}")
    return 1 if report.key else 0


def _only(seed: int, number: int, part: str) -> int:
    report = _attempted(partial(PARTS[part], seed, number))
    for text in (report.what, *report.detail.splitlines()):
        print(text.encode(errors="backslashreplace").decode())
    print(f"seed {seed}, {part}, number {number}: {report.stage}, {report.seconds:.2f} s; {report.key}")
    return 1 if report.key else 0


def _attempted(job: Job) -> Report:
    worker = Worker()
    report = worker.attempt(job)
    worker.stop()
    return report


if __name__ == "__main__":
    sys.exit(main())
