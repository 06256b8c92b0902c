"""The command counts what came of its mutants, writes what was found, and says so by its exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz import __main__ as command
from tests.fuzz.attempt import Report, attempt
from tests.fuzz.mutants import Mutant
from tests.fuzz.workers import Case

KEY = "run: KeyError engine/x.py:f"


class Fake:
    """Attempts in which mutants with `seed: ` in their text fail."""

    def attempt(self, job: Any) -> Report:
        mutant, runs, _ = job.args
        key = KEY if b"seed: " in mutant.data else ""
        return Report("run", good=True, ran=runs, key=key, detail="KeyError: 1", seconds=2.0)

    def stop(self) -> None: ...


def attempts(*queues: tuple[Iterator[Case], int, int]) -> Iterator[tuple[str, int, Report]]:
    for cases, _, _ in queues:
        for part, number, job in cases:
            yield part, number, Fake().attempt(job) if job.func is attempt else job()


def failing(seed: int, number: int) -> Report:
    return Report("ended", key="talk: hang" if number == 2 else "", detail="no end", what="silence")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setattr(command, "attempts", attempts)
    monkeypatch.setattr(command, "Worker", Fake)
    none = [argument for part in command.PARTS for argument in (f"--{part}", "0")]
    arguments = ["fuzz", *none, "--loads", "5", "--runs", "3", "--seed", "1", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", arguments)
    return monkeypatch


def test_findings_are_counted_shrunk_and_written(
    fake: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.setattr(command, "mutant", lambda seed, n: Mutant(b"name: x\nseed: 1\nrounds: 2\n", (), "made"))
    assert command.main() == 1
    printed = capsys.readouterr()
    assert "loads      5: 5 good, 0 refused\nruns       3\n" in printed.out
    assert f"     5 x  {KEY} (loads 0, 1, 2, 3, 4; " in printed.out
    assert f"seed 1, loads, number 0: {KEY} (KeyError: 1)" in printed.err
    (path,) = tmp_path.iterdir()
    assert path.read_text() == f"# {KEY}\n# seed 1, mutant 0: made\n# KeyError: 1\nseed: 1\n"


def test_nothing_found_is_success(fake: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fake.setattr(command, "mutant", lambda seed, n: Mutant(b"name: x\n", (), "made"))
    assert command.main() == 0
    assert "findings   0 of 0 kinds" in capsys.readouterr().out


def test_cases_of_other_parts_are_counted_and_written(
    fake: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four conversations, of which the third does not end."""
    fake.setitem(command.PARTS, "talks", failing)
    fake.setattr(sys, "argv", [*sys.argv, "--loads", "0", "--talks", "4"])
    assert command.main() == 1
    out = capsys.readouterr().out
    assert "talks      4: 3 ended, 1 found\n" in out
    assert "     1 x  talk: hang (talks 2; " in out
    (path,) = tmp_path.iterdir()
    again = "python -m tests.fuzz --seed 1 --part talks --only 2"
    assert path.read_text() == f"talk: hang\n{again}\nsilence\nno end\n"
