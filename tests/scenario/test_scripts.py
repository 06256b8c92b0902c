"""Scripted losses that cannot happen are refused, and problems have keys as they were typed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import simfl
from simfl.cli import main
from simfl.errors import ScenarioError
from simfl.scenario.load import load, select_protocols
from simfl.world.dropout import Script
from tests.scenario.worlds import ASYNC, SYNC, problems, read, swap, write

SLOW_AND_FAST = {"slow": {"share": 0.5}, "fast": {"share": 0.5}}


def loss(user: int = 1, index: int = 0, at: str = "upload") -> dict[str, Any]:
    return {"user": user, "round": index, "at": at, "when": "mid_send"}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"dropout.losses": [loss(index=3)]},
         "dropout.losses.0.round: round=3 is not reached: rounds=3 are numbered 0 to 2"),
        ({"dropout": {"script": [loss(), loss(2, at="recovery")]}, "protocols": ["fedavg"]},
         "dropout.script.1.at: at=recovery is not reached: a round of fedavg ends with upload"),
        ({"dropout": {"script": [loss(at="consistency")]}, "protocols": ["fedavg"]},
         "dropout.script.0.at: at=consistency is not reached: a round of fedavg ends with upload"),
        ({"population.classes": {**SLOW_AND_FAST, "fast": {"share": 0.5, "dropout": {"script": [loss(1)]}}}},
         "population.classes.fast.dropout.script.0.user: user=1 is of class slow, and the script is for "
         "class fast"),
    ],
)  # fmt: skip
def test_script_of_no_run_is_refused(tmp_path: Path, overrides: dict[str, Any], message: str) -> None:
    """SYNC has 3 rounds of 100 users; its seed puts user 1 into the first class."""
    assert problems(tmp_path, SYNC, overrides) == [f"overrides: {message}"]


def test_script_of_later_point_of_some_protocol_is_accepted(tmp_path: Path) -> None:
    """A loss at recovery happens to SecAgg's users; fedavg, compared with it, has no such point."""
    script = {"dropout": {"script": [loss(2, at="recovery")]}, "protocols": ["fedavg", "secagg"]}
    assert read(tmp_path, SYNC, script).rounds == 3


@pytest.mark.parametrize("command", ["check", "run"])
def test_script_beyond_last_round_has_exit_code_2(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A typo in a round's number, in a scenario's file on line 15."""
    script = "dropout: {script: [{user: 1, round: 9, at: upload, when: mid_send}]}"
    path = write(tmp_path, swap(SYNC, ("dropout: none", script)))
    with pytest.raises(SystemExit) as ended:
        main([command, str(path)])
    assert ended.value.code == 2
    assert "world.yaml:15: dropout.script.0.round: round=9 is not reached" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("partition: {dirichlet: -1}", "learning.partition.dirichlet"),
        ("partition: {kind: dirichlet, beta: -1}", "learning.partition.beta"),
        ("partition: 'dirichlet:-1'", "learning.partition"),
    ],
)
def test_problem_has_key_as_typed(tmp_path: Path, written: str, key: str) -> None:
    """One wrong value in three notations."""
    (line,) = problems(tmp_path, f"{ASYNC}learning: {{{written}}}\n")
    assert f" {key}: " in line


@pytest.mark.parametrize(
    ("options", "head"),
    [
        (["--set", "deadlines.upload=-1"], "--set: deadlines.upload: must be above 0, not -1"),
        (["--seed", "-1"], "--seed: seed: must be at least 0, not -1"),
        (["--set", "learning.lr=1e-10"], "--set: learning.lr: must be at least 1e-09, not 1e-10"),
    ],
)
def test_problem_has_option_as_typed(
    options: list[str], head: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the command line, over a shipped scenario."""
    with pytest.raises(SystemExit):
        main(["check", "tutorial", *options])
    assert capsys.readouterr().err.strip() == head


def test_problem_of_python_override_names_no_option() -> None:
    """A misspelt key in `overrides` of `simfl.run`."""
    with pytest.raises(ScenarioError, match=r"^overrides: rnds: unknown key 'rnds'; did you mean 'rounds'"):
        simfl.run("tutorial", {"rnds": 3})


def test_chosen_protocols_keep_losses_that_can_happen(tmp_path: Path) -> None:
    """`--protocols fedavg` of a scenario whose script also has a loss that only SecAgg's users can have."""
    script = {"dropout": {"script": [loss(1), loss(2, at="recovery")]}}
    chosen = select_protocols(read(tmp_path, SYNC, script), ["fedavg"])
    assert chosen.dropout == Script.model_validate({"losses": [loss(1)]})
    assert load(chosen) == chosen
