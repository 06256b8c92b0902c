"""Whole commands beside those of an earlier commit, and two workers beside none: ratios within one run."""

from __future__ import annotations

import subprocess
import time
from typing import Any

import pytest

from benchmarks import commands
from benchmarks.commands import BASE, REACH, ROOT, against

SMALL = ["scenarios/tutorial.yaml", "--clock", "modelled", "--set", "rounds=40"]


def test_commands_against_an_earlier_commit(found: Any) -> None:
    known = subprocess.run(["git", "cat-file", "-e", BASE], cwd=ROOT, capture_output=True, check=False)
    if known.returncode:
        pytest.skip(f"this checkout does not have commit {BASE}")
    rows = [(now / before, f"of {BASE}, {name}", REACH.get(name)) for name, before, now in against(turns=1)]
    found("CPU of a command", "now / before", *rows)


def test_two_workers_are_not_slower_than_none(found: Any) -> None:
    """Wall time and CPU of a run with nothing large to share; on a machine that does nothing else."""
    taken: dict[str, list[tuple[float, float]]] = {"0": [], "2": []}
    for _ in range(3):
        for workers, runs in taken.items():
            start = time.perf_counter()
            used = commands.cpu_s(ROOT, [*SMALL, "--set", f"workers={workers}"])
            runs.append((time.perf_counter() - start, used))
    (wall, cpu), (wall_2, cpu_2) = (map(min, zip(*runs, strict=True)) for runs in taken.values())
    found(
        "two workers",
        "a small run, two / none",
        (wall_2 / wall, "x of wall", 1.05),
        (cpu_2 / cpu, "x of CPU", None),
    )
