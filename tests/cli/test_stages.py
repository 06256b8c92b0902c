"""The stages of a command on stderr, off a terminal: those that last, and how far they have come."""

import time
from itertools import count
from threading import Semaphore

import pytest

from simfl.cli import common
from simfl.cli.common import stages


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "PATIENCE_S", 0.05)
    monkeypatch.setattr(common, "AGAIN_S", 0.05)


def test_how_far_a_stage_has_come_is_shown_again(capsys: pytest.CaptureFixture[str]) -> None:
    number, asked = count(), Semaphore(0)

    def so_far() -> str:
        asked.release()
        return f", {next(number)} of 3"

    with stages() as stage:
        stage("views", so_far)
        assert all(asked.acquire(timeout=60) for _ in range(3))  # when asked again, the last line is printed
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["simfl: views, 0 of 3 ...", "simfl: views, 1 of 3 ..."]


def test_a_stage_without_a_count_is_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that does not last is not shown."""
    shown: list[str] = []
    once = Semaphore(0)

    def print_lines(text: str, error: bool = False) -> None:
        shown.append(text)
        once.release()

    monkeypatch.setattr(common, "print_lines", print_lines)
    with stages() as stage:
        stage("short")
        stage("long")
        assert once.acquire(timeout=60)
        time.sleep(0.2)
    assert shown == ["simfl: long ..."]


def test_nothing_is_shown_behind_the_last_stage(capsys: pytest.CaptureFixture[str]) -> None:
    with stages() as stage:
        stage("views", lambda: ", 1 of 3")
    time.sleep(0.15)
    assert capsys.readouterr().err == ""
