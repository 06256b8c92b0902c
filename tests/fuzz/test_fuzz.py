"""300 mutants, the same each time; `make fuzz` does many more."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import simfl
from tests.fuzz import attempt as attempts
from tests.fuzz import findings
from tests.fuzz.attempt import attempt, bounded_memory
from tests.fuzz.mutants import SEEDS, Mutant, mutant

SEED, MUTANTS, EACH, FIRST = 1, 300, 10, 50
TINY = Mutant((SEEDS / "tiny.yaml").read_bytes(), (), "tiny")
FOUND = sorted((Path(__file__).parent / "found").glob("*.yaml"))


@pytest.mark.ci
@pytest.mark.parametrize(
    "first",
    [
        *range(0, FIRST, EACH),
        *(pytest.param(first, marks=pytest.mark.slow) for first in range(FIRST, MUTANTS, EACH)),
    ],
)
def test_mutants_are_refused_or_run(first: int) -> None:
    found = []
    with bounded_memory():
        for number in range(first, first + EACH):
            chosen = mutant(SEED, number)
            report = attempt(chosen)
            if report.key:
                again = f"python -m tests.fuzz --seed {SEED} --only {number}"
                found.append(f"{again}\n{chosen.what}\n{report.key}\n{report.detail}")
    assert not found, "\n\n".join(found)


@pytest.mark.ci(but=["tiny"])
@pytest.mark.parametrize("path", sorted(SEEDS.glob("*.yaml")), ids=lambda path: path.stem)
def test_what_is_mutated_runs_itself(path: Path) -> None:
    report = attempt(Mutant(path.read_bytes(), (), path.name))
    assert report.ran, report


@pytest.mark.ci(but=["empty_at_rest"])
@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_what_was_found_is_mended(path: Path) -> None:
    with bounded_memory():
        report = attempt(findings.read(path))
    assert not report.key, report


def test_error_is_a_finding_by_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **more: Any) -> None:
        raise KeyError("0.0")

    monkeypatch.setattr(simfl.engine.server_side.ServerSide, "call", fail)
    report = attempt(TINY)
    assert report.key == "run: KeyError engine/rounds.py:_begin"
    assert report.detail.endswith("KeyError: '0.0'")


def test_hang_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "WALL_S", 0.5)
    monkeypatch.setattr(attempts, "build", lambda scenario: time.sleep(60))
    assert attempt(TINY).key == "build: TimeUp"
