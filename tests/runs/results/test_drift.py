"""The drift of the machine's speed: what is left out of it, and over what it is told."""

from simfl.runs.results.drift import Drift, warning


def drift(*ns: int) -> Drift | None:
    return Drift.of({"fedavg": list(ns)})


def test_a_disturbed_timing_is_no_drift() -> None:
    steady = [100] * 19
    assert warning([drift(*steady, 900)]) is None
    assert warning([drift(*steady[:-2], 900, 900, 900)]) is not None


def test_a_single_timing_does_not_drift() -> None:
    found = drift(100)
    assert found is not None
    assert found.ratio == 1
    assert warning([found]) is None


def test_without_a_timing_there_is_no_drift() -> None:
    assert Drift.of({"fedavg": [None, None], "secagg": []}) is None
    assert warning([None]) is None


def test_runs_that_are_steady_drift_from_one_another() -> None:
    told = warning([drift(100, 101), None, drift(200, 201)])
    assert told is not None
    assert told.startswith("The machine's speed moved by 101 % during these runs")
    assert "more of them" in told
