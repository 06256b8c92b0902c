"""The command: so many mutants loaded, so many run, a table at the end; exit code 1 if anything was found."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz import findings
from tests.fuzz.attempt import CPU_S, Report
from tests.fuzz.mutants import Mutant, mutant
from tests.fuzz.workers import Job, Worker, attempts, own_cache

PROGRESS_S = 10.0
SHRINK_S = 40.0
"""For each kind of finding."""
SHORT_S = 5.0
"""For what takes too long, while it is shrunk."""


@dataclass
class Tally:
    """What came of all mutants so far."""

    loads: int = 0
    good: int = 0
    refused: int = 0
    runs: int = 0
    found: dict[str, list[int]] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)
    slowest: tuple[float, int] = (0.0, -1)
    largest: tuple[int, int] = (0, -1)

    def add(self, number: int, report: Report) -> None:
        """Count one mutant's report."""
        self.loads += 1
        self.good += report.good
        self.refused += bool(report.refusal)
        self.runs += report.ran
        self.slowest = max(self.slowest, (report.seconds, number))
        self.largest = max(self.largest, (report.peak_bytes, number))
        if report.key:
            self.found.setdefault(report.key, []).append(number)
            self.details.setdefault(report.key, report.detail)

    def line(self) -> str:
        """Where it stands."""
        count = sum(map(len, self.found.values()))
        return f"{self.loads} loads, {self.runs} runs, {count} findings of {len(self.found)} kinds"

    def table(self, files: dict[str, Path]) -> Iterator[str]:
        """What is told at the end."""
        yield f"loads      {self.loads}: {self.good} good, {self.refused} refused"
        yield f"runs       {self.runs}"
        yield f"slowest    {self.slowest[0]:.1f} s (mutant {self.slowest[1]})"
        yield f"largest    {self.largest[0] / 1e9:.2f} GB more (mutant {self.largest[1]})"
        yield f"findings   {sum(map(len, self.found.values()))} of {len(self.found)} kinds"
        for key, numbers in sorted(self.found.items(), key=lambda item: -len(item[1])):
            yield f"{len(numbers):6} x  {key} (first: mutant {numbers[0]}; {files.get(key, 'not written')})"


def main() -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--loads", type=int, default=20_000, help="mutants to load and build")
    parser.add_argument("--runs", type=int, default=5_000, help="the first so many good ones are run")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--seed", type=int, default=1, help="other mutants")
    parser.add_argument("--first", type=int, default=0, help="the number of the first mutant")
    parser.add_argument("--only", type=int, help="this mutant alone: its text, and what comes of it")
    parser.add_argument("--out", type=Path, default=Path("runs/fuzz"), help="where findings go")
    given = parser.parse_args()
    with own_cache():
        return _only(given.seed, given.only) if given.only is not None else _all(given)


def _all(given: argparse.Namespace) -> int:
    tally, begun, told = Tally(), time.monotonic(), 0.0

    def jobs() -> Iterator[Job]:
        for number in range(given.first, given.first + given.loads):
            yield mutant(given.seed, number), tally.runs < given.runs, CPU_S

    for place, _, report in attempts(jobs(), given.jobs):
        number = given.first + place
        if report.key and report.key not in tally.found:
            print(f"seed {given.seed}, mutant {number}: {report.short}", file=sys.stderr)
        tally.add(number, report)
        if time.monotonic() > told + PROGRESS_S:
            told = time.monotonic()
            print(f"{told - begun:6.0f} s  {tally.line()}", file=sys.stderr)
    files = _written(given, tally)
    print(f"seed       {given.seed}, {time.monotonic() - begun:.0f} s")
    print("\n".join(tally.table(files)))
    return 1 if tally.found else 0


def _written(given: argparse.Namespace, tally: Tally) -> dict[str, Path]:
    """A file for the first mutant of each kind of finding, shrunk."""
    files: dict[str, Path] = {}
    if not tally.found:
        return files
    worker = Worker()
    for index, (key, numbers) in enumerate(tally.found.items(), 1):
        whole = mutant(given.seed, numbers[0])
        path = given.out / f"finding-{index}-{findings.slug(key)}.yaml"
        words = f"{key}\nseed {given.seed}, mutant {numbers[0]}: {whole.what}\n{tally.details[key]}"
        least = findings.shrink(whole, _does_the_same(worker, key), SHRINK_S)
        findings.write(path, least, words)
        files[key] = path
        print(f"written to {path}", file=sys.stderr)
    worker.stop()
    return files


def _does_the_same(worker: Worker, key: str) -> Callable[[Mutant], bool]:
    cpu_s = SHORT_S if "TimeUp" in key else CPU_S
    runs = key.startswith("run")

    def same(smaller: Mutant) -> bool:
        return worker.attempt((smaller, runs, cpu_s)).key == key

    return same


def _only(seed: int, number: int) -> int:
    chosen = mutant(seed, number)
    worker = Worker()
    report = worker.attempt((chosen, True, CPU_S))
    worker.stop()
    print(chosen.data.decode(errors="backslashreplace"))
    print(f"# seed {seed}, mutant {number}: {chosen.what}")
    for text in (*chosen.sets, *report.refusal.splitlines(), *report.detail.splitlines()):
        print(f"# {text}".encode(errors="backslashreplace").decode())
    print(f"# {report.stage}, good: {report.good}, ran: {report.ran}, {report.seconds:.2f} s; {report.key}")
    return 1 if report.key else 0


if __name__ == "__main__":
    sys.exit(main())
