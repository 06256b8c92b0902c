"""The command counts what came of its mutants, writes what was found, and says so by its exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz import __main__ as command
from tests.fuzz.attempt import Report
from tests.fuzz.mutants import Mutant
from tests.fuzz.workers import Job

KEY = "run: KeyError engine/x.py:f"


class Fake:
    """Attempts in which mutants with `seed: ` in their text fail."""

    def attempt(self, job: Job) -> Report:
        bad = b"seed: " in job[0].data
        return Report("run", good=True, ran=job[1], key=KEY if bad else "", detail="KeyError: 1", seconds=2.0)

    def stop(self) -> None: ...


def attempts(jobs: Iterator[Job], processes: int) -> Iterator[tuple[int, Job, Report]]:
    for number, job in enumerate(jobs):
        yield number, job, Fake().attempt(job)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setattr(command, "attempts", attempts)
    monkeypatch.setattr(command, "Worker", Fake)
    arguments = ["fuzz", "--loads", "5", "--runs", "3", "--seed", "1", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", arguments)
    return monkeypatch


def test_findings_are_counted_shrunk_and_written(
    fake: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.setattr(command, "mutant", lambda seed, n: Mutant(b"name: x\nseed: 1\nrounds: 2\n", (), "made"))
    assert command.main() == 1
    printed = capsys.readouterr()
    assert "loads      5: 5 good, 0 refused\nruns       3\n" in printed.out
    assert f"     5 x  {KEY} (first: mutant 0; " in printed.out
    assert f"seed 1, mutant 0: {KEY} (KeyError: 1)" in printed.err
    (path,) = tmp_path.iterdir()
    assert path.read_text() == f"# {KEY}\n# seed 1, mutant 0: made\n# KeyError: 1\nseed: 1\n"


def test_nothing_found_is_success(fake: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fake.setattr(command, "mutant", lambda seed, n: Mutant(b"name: x\n", (), "made"))
    assert command.main() == 0
    assert "findings   0 of 0 kinds" in capsys.readouterr().out
