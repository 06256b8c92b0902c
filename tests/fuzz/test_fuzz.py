"""300 mutants, the same each time; `make fuzz` does many more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import findings
from tests.fuzz.attempt import attempt, bounded_memory
from tests.fuzz.mutants import SEEDS, Mutant, mutant

SEED, MUTANTS, EACH, FIRST = 1, 300, 10, 50
FOUND = sorted((Path(__file__).parent / "found").glob("*.yaml"))


@pytest.mark.ci(but=["[20]"])
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


@pytest.mark.ci(but=["tiny", "buffer"])
@pytest.mark.parametrize("path", sorted(SEEDS.glob("*.yaml")), ids=lambda path: path.stem)
def test_what_is_mutated_runs_itself(path: Path) -> None:
    report = attempt(Mutant(path.read_bytes(), (), path.name))
    assert report.ran, report


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_what_was_found_is_mended(path: Path) -> None:
    with bounded_memory():
        report = attempt(findings.read(path))
    assert not report.key, report
