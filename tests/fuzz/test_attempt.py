"""What is a finding and what is not, and that hangs and lost processes are."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from typing import Any

import numpy as np
import pytest

import simfl
from simfl.errors import BadInput, RunFailed
from simfl.runs.build import build
from tests.fuzz import attempt as attempts
from tests.fuzz import workers
from tests.fuzz.attempt import attempt, bounded_memory
from tests.fuzz.mutants import SEEDS, Mutant

TINY = Mutant((SEEDS / "tiny.yaml").read_bytes(), (), "tiny")


def raising(error: BaseException) -> Any:
    def fail(*arguments: Any, **more: Any) -> None:
        raise error

    return fail


def forever(scenario: Any) -> None:
    while True:
        pass


def test_a_good_scenario_runs_and_is_no_finding() -> None:
    report = attempt(TINY)
    assert (report.stage, report.good, report.ran, report.key) == ("run", True, True, "")


def test_a_good_scenario_is_only_run_if_asked_for() -> None:
    report = attempt(TINY, run=False)
    assert (report.stage, report.good, report.ran, report.key) == ("build", True, False, "")


def test_a_refusal_is_no_finding() -> None:
    report = attempt(Mutant(TINY.data, ("rounds=0",), ""))
    assert not report.good
    assert report.key == ""
    assert "rounds" in report.refusal


@pytest.mark.parametrize("text", ["x" * 2000, "word\n" * 10_000, ""])
def test_a_message_that_nobody_can_read_is_one(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "build", raising(BadInput(text)))
    assert attempt(TINY).key in ("build: long message", "build: empty message")


def test_a_run_that_fails_before_it_begins_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "build", raising(RunFailed("not known here")))
    assert attempt(TINY).key == "build: without a place"


def test_any_other_error_is_one_by_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simfl.engine.server_side.ServerSide, "call", raising(KeyError("0.0")))
    report = attempt(TINY)
    assert report.key == "run: KeyError engine/rounds.py:_begin"
    assert report.detail.endswith("KeyError: '0.0'")


def test_a_hang_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "build", forever)
    assert attempt(TINY, cpu_s=0.05).key == "build: TimeUp"


def test_waiting_for_ever_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "WALL_S", 0.5)
    monkeypatch.setattr(attempts, "build", lambda scenario: time.sleep(60))
    assert attempt(TINY).key == "build: TimeUp"


@pytest.mark.ci
def test_memory_beyond_the_limit_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "SLACK_BYTES", 10**7)
    monkeypatch.setattr(attempts, "build", lambda scenario: np.ones(10**8) is None or build(scenario))
    assert attempt(Mutant(TINY.data, ("memory_limit_gb=0.01",), ""), run=False).key == "build: memory"


def test_too_much_memory_is_an_error_and_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "build", lambda scenario: np.ones(10**10))
    with bounded_memory():
        assert attempt(TINY).key.startswith("build: MemoryError")


@pytest.mark.ci
def test_a_process_lost_twice_is_one_and_is_replaced() -> None:
    worker = workers.Worker()
    worker.give(partial(attempt, TINY))
    first = worker.process.pid
    kill(worker)
    while worker.process.pid == first:
        assert worker.report() is None
    kill(worker)
    while (report := worker.report()) is None:
        time.sleep(0.01)
    assert report.key == "died: exit code -9"
    assert worker.attempt(partial(attempt, TINY)).ran
    worker.stop()


def kill(worker: workers.Worker) -> None:
    assert worker.process.pid is not None
    os.kill(worker.process.pid, signal.SIGKILL)
