"""The measured clock: what is done before a step to its caches is not in its time."""

import time

import pytest

import simfl
from simfl.dataplane.work import Segment
from simfl.engine import clocks
from simfl.engine.clocks import MeasuredClock
from simfl.scenario.load import load
from tests.engine.harness import ROOT


def test_a_cold_step_comes_after_a_pause_and_other_data(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    clock = MeasuredClock("CPU time", cold=True)
    assert clock.timed_by == "CPU time with cold caches"
    began = time.thread_time_ns()
    clock.prepare()
    assert slept == [clocks.PAUSE_S]
    assert time.thread_time_ns() - began > 10**5  # reads half a million lines
    assert clock.work_ns(Segment("upload", taken_ns=7), 3.0) == 21


def test_a_warm_step_is_timed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda s: pytest.fail("a pause"))
    MeasuredClock("CPU time").prepare()


@pytest.mark.ci
def test_each_step_of_a_cold_run_is_made_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    ready: list[int] = []
    monkeypatch.setattr(MeasuredClock, "prepare", lambda self: ready.append(1))
    overrides = {"clock": "measured:cold", "rounds": 1}
    result = simfl.run(load(ROOT / "scenarios" / "tutorial.yaml", overrides))
    traces = result.traces.values()
    steps = sum(type(row).__name__ == "Step" for trace in traces for row in trace)
    assert len(ready) == steps > 10
    assert {trace.timed_by for trace in traces} == {"CPU time with cold caches"}
    assert all(one.aggregate_exact for many in result.measured.values() for one in many)
