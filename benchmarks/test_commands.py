"""Whole commands, as a user gives them, against the same command at an earlier commit and without workers.

The earlier commit is checked out into a folder that goes afterwards; where git does not know it, as in an
archive of the sources, its rows are left out. Each command runs in a process of its own; the two sides take
turns and the best of three counts. `first run` has an empty cache folder, as a new user's; in the others both
know already what they remember of a machine.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
BEFORE = "81c6d77"
TURNS = 3
MAIN = "scenarios/async_buffer.yaml"


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The earlier commit's files."""
    tree = tmp_path_factory.mktemp("before") / "tree"
    add = ["git", "worktree", "add", "--detach", str(tree), BEFORE]
    done = subprocess.run(add, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no checkout of {BEFORE} to compare with: {done.stderr.strip()}")
    yield tree
    subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)


def seconds(tree: Path, cache: Path, out: Path, *arguments: str) -> tuple[float, float]:
    """The CPU and wall-clock seconds of a run of this tree."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "SIMFL_CACHE": str(cache)}
    command = [sys.executable, "run.py", *arguments, "--out", str(out)]
    used, since = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, cwd=tree, env=environment, check=True, capture_output=True)
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    return now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime, time.monotonic() - since


def best(sides: list[Callable[[int], float]]) -> list[float]:
    """The least of each side, which take turns."""
    turns = [[side(turn) for side in sides] for turn in range(TURNS)]
    return [min(each) for each in zip(*turns, strict=True)]


@pytest.mark.parametrize(
    ("name", "arguments", "reach"),
    [
        ("async_buffer modelled", (MAIN, "--clock", "modelled"), 0.5),
        ("async_buffer measured", (MAIN, "--clock", "measured"), 0.4),
        ("async_buffer modelled, first run", (MAIN, "--clock", "modelled"), 0.5),
    ],
)
def test_commands_take_a_part_of_what_they_took(
    found: Any, before: Path, tmp_path: Path, name: str, arguments: tuple[str, ...], reach: float
) -> None:
    def cpu(tree: Path, turn: int) -> float:
        which = f"{tree.name}{turn}"
        cache = tmp_path / (which if "first" in name else tree.name)
        return seconds(tree, cache, tmp_path / f"out-{which}", *arguments)[0]

    for tree in (before, ROOT):  # what each compiles or finds out once
        cpu(tree, -1)
    old, new = best([lambda turn: cpu(before, turn), lambda turn: cpu(ROOT, turn)])
    found("commands", name, (new, "CPU s", None), (new / old, f"of {BEFORE}", reach))


@pytest.mark.parametrize("scenario", [MAIN, "scenarios/sync_breakdown.yaml"])
def test_workers_make_nothing_slower(found: Any, tmp_path: Path, scenario: str) -> None:
    def wall(workers: int, turn: int) -> float:
        out = tmp_path / f"out-{workers}-{turn}"
        arguments = (scenario, "--clock", "modelled", "--workers", str(workers))
        return seconds(ROOT, tmp_path / "cache", out, *arguments)[1]

    wall(0, -1)
    alone, two = best([lambda turn: wall(0, turn), lambda turn: wall(2, turn)])
    found("commands", f"{Path(scenario).stem}, two workers", (two / alone, "of none's wall clock", 1.05))
