"""The measured clock: what is done before a step to its caches is not in its time."""

import time

import pytest

import simfl
from simfl.dataplane.work import Segment
from simfl.engine import clocks
from simfl.engine.clocks import Measured, Recorded, Recording
from simfl.scenario.load import load
from tests.engine.harness import ROOT


def test_a_cold_step_comes_after_a_pause_and_other_data(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    clock = Measured("CPU time", cold=True)
    assert clock.timed_by == "CPU time with cold caches"
    began = time.thread_time_ns()
    clock.ready()
    Recorded(Recording([]), None, clock).ready()  # the rest of a run that goes on
    assert slept == [clocks.PAUSE_S] * 2
    assert time.thread_time_ns() - began > 2 * 10**5  # reads half a million lines each time
    assert clock.work_ns(Segment("upload", taken_ns=7), 3.0) == 21


def test_a_warm_step_is_timed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda s: pytest.fail("a pause"))
    Measured("CPU time").ready()


@pytest.mark.ci
def test_each_step_of_a_cold_run_is_made_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    ready: list[int] = []
    monkeypatch.setattr(Measured, "ready", lambda self: ready.append(1))
    overrides = {"clock": "measured:cold", "rounds": 1}
    result = simfl.run(load(ROOT / "scenarios" / "tutorial.yaml", overrides))
    traces = result.traces.values()
    steps = sum(type(row).__name__ == "Step" for trace in traces for row in trace)
    assert len(ready) == steps > 10
    assert {trace.timed_by for trace in traces} == {"CPU time with cold caches"}
    assert all(one.aggregate_exact for many in result.measured.values() for one in many)
