"""The estimate of an exploration: parts of rounds add up exactly, and its time is about what it takes."""

from __future__ import annotations

import time
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest

from simfl.cli import common, main
from simfl.studies.explore import effort
from simfl.studies.explore.cohort import RoundCohort, every_pattern
from simfl.studies.explore.rounds import explore, make_cohort, total
from simfl.studies.proof import patterns as sweep


@pytest.mark.parametrize("protocol", ["fedavg", pytest.param("lightsecagg", marks=pytest.mark.slow)])
def test_the_parts_of_each_round_add_up_to_one(protocol: str) -> None:
    cohort = make_cohort(protocol, 3)
    assert isinstance(cohort, RoundCohort)
    parts: Counter[object] = Counter()
    for lost in range(4):
        for pattern in every_pattern(3, cohort.fates("told"), lost):
            vars(cohort).pop("tree", None)
            cohort.judge(pattern, "told")
            parts[next(iter(cohort.tree.leaves))] += Fraction(1, effort._size(cohort, "told"))
    assert set(parts.values()) == {1}
    assert 1 < len(parts) <= total(cohort) / 2


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "users"), [("fedavg", 6), ("lightsecagg", 3), ("fedbuff", 3)])
def test_an_exploration_takes_the_estimated_time(protocol: str, users: int) -> None:
    cohort = make_cohort(protocol, users)
    expected, since = effort.seconds_for_all(cohort), time.monotonic()
    report = explore(cohort, affected_users=None if protocol != "fedbuff" else 1)
    took = (time.monotonic() - since) * total(cohort) / report.patterns
    assert took / 3 < expected < 3 * took


@pytest.mark.ci(but=["explore"])
@pytest.mark.parametrize("command", ["explore", "privacy proof"])
def test_long_work_is_asked_for(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(effort, "FEW_PATTERNS", 100)
    monkeypatch.setattr(sweep, "FEW_PATTERNS", 100)
    monkeypatch.setattr(effort, "SAMPLE_S", 0.01)
    monkeypatch.setattr(common, "LONG_S", 1e-3)
    with pytest.raises(SystemExit) as left:
        main([*command.split(), "fedavg"])
    out, errors = capsys.readouterr()
    assert (left.value.code, out) == (2, "")
    what = "all 162 patterns" if command == "explore" else "every loss"
    assert f"fedavg, 4 users: {what} would take about " in errors
    assert "--random N tries N random ones, --yes all of them" in errors
    for chosen in (["--yes"], ["--random", "5", "--yes"]):
        with pytest.raises(SystemExit) as left:
            main([*command.split(), "fedavg", *chosen])
        assert left.value.code in (0, 1)  # FedAvg leaks
        assert "fedavg, 4 users: " in capsys.readouterr().out
