"""Users who differ, go offline, or draw energy, relative to equal users: ratios within one run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import availability, people
from benchmarks.network import messages, microseconds, shared

CONCURRENT, COUNT = 10_000, 10_000
UNEQUAL = 1.5  # times an event among equal caps, to reach
COMING = ("sessions", "diurnal", "entries")
REACH = {"cpu_s": ("x CPU", 2), "peak_mb": ("x memory", 1.5)}
"""Times those of a million users who are always online, to reach."""


@pytest.mark.parametrize(("name", "way"), [("of one link", shared), ("of whole messages", messages)])
def test_an_event_among_unequal_caps(name: str, way: Callable[[int, int, int], Any], found: Any) -> None:
    equal, unequal = (
        microseconds(lambda n, count, caps=caps: way(n, count, caps), CONCURRENT, COUNT)
        for caps in (1, CONCURRENT)
    )
    found("caps: 10,000 unequal / equal", name, (unequal / equal, "x", UNEQUAL))


def test_a_counted_round_of_users_who_differ(found: Any) -> None:
    taken = dict(people.least("lightsecagg", 10_000, 2))
    alike = taken.pop(people.ALIKE)
    rows = [(seconds / alike, f"x, {way}", people.REACH.get(way)) for way, seconds in taken.items()]
    found("10,000 users, counted", "CPU of a round / alike", *rows)


@pytest.fixture(scope="module")
def always(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    return coming("always", tmp_path_factory.mktemp("always"))


def coming(kind: str, folder: Path) -> dict[str, float]:
    """Run a million users of this availability in a separate process; return its cost."""
    availability.write_trace(folder / "online.csv", availability.ENTRIES)
    command = [sys.executable, availability.__file__, json.dumps([kind, 1_000_000, 100_000])]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    got: dict[str, float] = json.loads(done.stdout)
    return got


@pytest.mark.parametrize("kind", COMING)
def test_a_million_users_who_come_and_go(
    kind: str, always: dict[str, float], tmp_path: Path, found: Any
) -> None:
    got = coming(kind, tmp_path)
    rows = [(got[key] / always[key], unit, reach) for key, (unit, reach) in REACH.items()]
    found("a million users", f"{kind} / always", *rows)
