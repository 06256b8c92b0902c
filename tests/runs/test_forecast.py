"""The forecast of a run of many users: said first, and about what the run takes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from simfl.cli import main
from simfl.cli import run as command
from simfl.errors import BadInput
from simfl.runs import memory as foretold
from simfl.runs.simulation import run
from simfl.scenario.load import load
from tests.engine.harness import ROOT

TUTORIAL = ROOT / "scenarios" / "tutorial.yaml"
SMALL_MODEL = {"kind": "synthetic", "shape": [64], "classes": 10, "train": 200_000, "test": 100}


def shadow(users: int, name: str, rounds: int = 1) -> dict[str, Any]:
    return {
        "payload": "shadow", "rounds": rounds, "population.users": users, "protocols": [name],
        "memory_limit_gb": 40, "learning.dataset": SMALL_MODEL, "privacy": {"T": 10, "D": users // 3},
        "quantization": {"levels": 1, "clip": 1.0}, "deadlines": dict.fromkeys(
            ("advertise", "shares", "upload", "recovery"), 9e6
        ),
    }  # fmt: skip


@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "least", "most"), [("fedavg", 5.5, 6.5), ("lightsecagg", 18, 21), ("secagg", 18, 21)]
)
def test_the_rows_of_a_member_are_those_of_the_forecast(name: str, least: float, most: float) -> None:
    scenario = load(TUTORIAL, shadow(200, name))
    rows = len(run(scenario).traces[name]) / 200
    assert least <= rows <= most
    assert least <= foretold.ROWS[scenario.protocols[name].offline] <= most


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedavg", "lightsecagg", "secagg_plus"])
def test_a_run_takes_about_its_forecast(name: str) -> None:
    scenario = load(TUTORIAL, shadow(10_000, name, rounds=2))
    since = time.process_time()
    run(scenario)
    took = time.process_time() - since
    assert took / 3 < foretold.forecast(scenario).seconds < 3 * took


@pytest.mark.parametrize("name", ["run", "check"])
def test_a_run_of_many_users_prints_its_forecast_first(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise BadInput("built only after that")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("simfl.reports.checked.build", refused)
    monkeypatch.setattr("simfl.runs.simulation.build", refused)
    changes = [
        "--set",
        "memory_limit_gb=40",
        "--set",
        "rounds=2",
        "--protocols",
        "fedavg",
        "--set",
        "payload=shadow",
    ]
    for users, said in ((100_000, True), (99_999, False)):
        with pytest.raises(SystemExit) as left:
            main([name, str(TUTORIAL), "--set", f"population.users={users}", *changes])
        assert left.value.code == 2
        errors = capsys.readouterr().err
        assert ("simfl: 100,000 users, 2 rounds of fedavg: about 31 s and " in errors) is said
        assert "built only after that" in errors


def succeed(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert not left.value.code


@pytest.mark.ci
def test_a_piped_run_prints_each_protocol_as_it_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """On stderr, and only of a run that lasts: tables alone are on stdout."""
    arguments = ["run", str(TUTORIAL), "--set", "payload=shadow", "--set", "rounds=2", "--out"]
    succeed([*arguments, str(tmp_path / "short")])
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(command, "PATIENCE_S", 0.0)
    succeed([*arguments, str(tmp_path / "long")])
    out, errors = capsys.readouterr()
    told = [line.split(", t = ")[0] for line in errors.splitlines()]
    assert told == [f"simfl: {name}: 2 rounds" for name in ("fedavg", "secagg", "lightsecagg")]
    assert "simfl: fedavg" not in out
    succeed([*arguments, str(tmp_path / "quiet"), "--no-progress"])
    assert capsys.readouterr().err == ""
