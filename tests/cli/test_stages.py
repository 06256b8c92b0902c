"""The stages of a command on stderr, off a terminal: those that last, and how far they have come."""

import time

import pytest

from simfl.cli import common
from simfl.cli.common import stages


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "PATIENCE_S", 0.05)
    monkeypatch.setattr(common, "AGAIN_S", 0.05)


def test_how_far_a_stage_has_come_is_shown_again(capsys: pytest.CaptureFixture[str]) -> None:
    done = 0
    with stages() as stage:
        stage("views", lambda: f", {done} of 3")
        for done in range(1, 4):
            time.sleep(0.1)
    lines = capsys.readouterr().err.splitlines()
    assert {"simfl: views, 1 of 3 ...", "simfl: views, 3 of 3 ..."} <= set(lines)


def test_a_stage_without_a_count_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    """And one that does not last is not shown."""
    with stages() as stage:
        stage("short")
        stage("long")
        time.sleep(0.3)
    assert capsys.readouterr().err == "simfl: long ...\n"


def test_nothing_is_shown_behind_the_last_stage(capsys: pytest.CaptureFixture[str]) -> None:
    with stages() as stage:
        stage("views", lambda: ", 1 of 3")
    time.sleep(0.15)
    assert capsys.readouterr().err == ""
