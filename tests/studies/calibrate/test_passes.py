"""Calibration: intervals that hold the median, rates that come out of known ones, files that load."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import count
from math import comb
from pathlib import Path
from typing import Any

import pytest
import yaml

from simfl import cli, profiles
from simfl.dataplane.work import CODEC, WORK
from simfl.learning.device_clock import DeviceTimer
from simfl.learning.models import MODELS
from simfl.profiles import TRAINING_WORK
from simfl.studies.calibrate import kernels, passes
from tests.engine.harness import ROOT

KNOWN = {kind: (k + 1) * 1e-6 for k, kind in enumerate(sorted({*WORK, CODEC} - set(TRAINING_WORK)))}


@pytest.mark.parametrize("n", [*range(6, 30), 59])
def test_an_interval_is_the_narrowest_that_holds_the_median(n: int) -> None:
    def coverage(beyond: int) -> float:  # of the k-th smallest to the k-th largest, k - 1 = beyond
        return 1 - 2 * sum(comb(n, k) for k in range(beyond + 1)) / 2**n

    low, high = passes.interval([float(k) for k in reversed(range(n))])
    assert high == n - 1 - low
    assert coverage(int(low)) >= 0.95 > coverage(int(low) + 1)


def test_too_few_values_have_no_interval() -> None:
    with pytest.raises(ValueError, match=r"5 values .* 6 are needed"):
        passes.interval([1.0] * 5)


def test_two_rates_come_out_of_the_times_that_they_make() -> None:
    rows = [(n, n * b, 3e-6 * n + 2e-10 * n * b) for n, b in ((50, 100), (50, 120_000), (8, 40))]
    assert kernels.solve(*rows) == pytest.approx((3e-6, 2e-10))


def test_steps_of_small_rounds_tell_single_operations_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played = kernels.play

    def play(protocol: str, users: int, steps: kernels.Steps, round_: int) -> None:
        mine: kernels.Steps = kernels.defaultdict(kernels.Counter)
        played(protocol, users, mine, round_)
        for key, work in mine.items():  # as if each step took what its work takes
            del work["cpu_ns"]
            work["cpu_ns"] = round(1e9 * sum(n * KNOWN[kind] for kind, n in work.items()))
            steps[key] = work

    monkeypatch.setattr(kernels, "play", play)
    monkeypatch.setattr(kernels, "COHORTS", (5, 12))
    known = {kind: rate for kind, rate in KNOWN.items() if kind not in kernels.ONE_BY_ONE}
    assert kernels.of_rounds(known, 0) == pytest.approx(
        {kind: KNOWN[kind] for kind in kernels.ONE_BY_ONE}, rel=1e-6
    )


def test_a_pass_measures_every_kind_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    once = partial(kernels.seconds, repeats=1)
    monkeypatch.setattr(kernels, "seconds", lambda call, *_, **__: once(call))
    monkeypatch.setattr(kernels, "D", 5_000)
    monkeypatch.setattr(kernels, "COHORTS", (5, 8))
    found = {
        **kernels.of_keys(),
        **kernels.of_vectors(),
        **kernels.of_codes(),
        **kernels.of_wire(),
        **kernels.of_steps()(),
    }
    found |= kernels.of_rounds(found, 0)
    assert set(found) == {*WORK, CODEC} - set(TRAINING_WORK)
    assert all(0 < rate < 0.1 for rate in found.values())


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements that are over at once: the k-th pass finds k times the known rates."""
    index = count(1)

    def found(known: Mapping[str, float], round_: int) -> dict[str, float]:
        k = next(index)
        return {kind: k * rate for kind, rate in KNOWN.items()}

    for name in ("of_keys", "of_vectors", "of_codes", "of_wire"):
        monkeypatch.setattr(kernels, name, dict)
    monkeypatch.setattr(kernels, "of_steps", lambda: dict)
    monkeypatch.setattr(kernels, "of_rounds", found)
    monkeypatch.setattr(kernels, "PAPERS_TRAININGS", kernels.PAPERS_TRAININGS[:1])


@pytest.mark.usefixtures("quick")
def test_a_profile_has_medians_and_intervals_and_loads(tmp_path: Path) -> None:
    out = tmp_path / "mine.yaml"
    with pytest.raises(SystemExit) as stopped:
        cli.main(["calibrate", str(out), "--passes", "9"])
    assert not stopped.value.code
    profile = profiles.load(str(out))
    for kind, rate in KNOWN.items():
        assert profile.seconds[kind] == pytest.approx(6 * rate, rel=0.005)  # passes 2 .. 10
        assert profile.intervals[kind] == pytest.approx((3 * rate, 9 * rate), rel=0.005)
    (law,) = profile.training
    assert law.model == "logistic"
    assert law.intervals["sample"][0] <= law.sample <= law.intervals["sample"][1]
    assert [file.name for file in tmp_path.iterdir()] == ["mine.yaml"]


@pytest.mark.usefixtures("quick")
def test_the_model_of_a_scenario_gets_a_law_too(tmp_path: Path) -> None:
    out = tmp_path / "mine.yaml"
    scenario = str(ROOT / "scenarios" / "sync_breakdown.yaml")
    with pytest.raises(SystemExit):
        cli.main(["calibrate", str(out), "--passes", "6", "--for", scenario])
    assert profiles.load(str(out)).law("cnn", (1, 8, 8), 10) is not None


class SevenMilliseconds:
    """A device on which each training takes 7 ms."""

    name = "fake device"

    def start(self) -> None: ...

    def elapsed_ns(self) -> int:
        return 7 * 10**6


def test_a_law_on_a_device_is_of_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = DeviceTimer(SevenMilliseconds)
    monkeypatch.setattr("simfl.learning.trainer.timer_of", lambda device: timer)
    monkeypatch.setattr(passes, "timer_of", lambda device: timer)
    monkeypatch.setattr("time.thread_time_ns", lambda: 0)
    here, on_gpu = (
        kernels.Training(MODELS["cnn"](), (1, 8, 8), 10, 10, device) for device in ("cpu", "cuda")
    )
    law = kernels.of_training(here)()
    assert (law.start, law.sample) == pytest.approx((0.007, 0), abs=1e-9)
    assert passes.described([on_gpu]).endswith(f"; training of cnn: {timer.described}")
    assert timer.described not in passes.described(kernels.PAPERS_TRAININGS)


def test_a_profile_without_a_folder_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "calibrate", lambda *_: pytest.fail("measured"))
    with pytest.raises(SystemExit) as stopped:
        cli.main(["calibrate", str(tmp_path / "nowhere" / "mine.yaml")])
    assert stopped.value.code == 2
    assert f"there is no folder {tmp_path / 'nowhere'}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("intervals", "message"),
    [
        ({"step": [2e-6, 1e-6]}, "intervals.step: 2e-06 is above 1e-06"),
        ({"stride": [1e-7, 1.0]}, "intervals.stride is of no rate that is given"),
        ({"step": [0, 1.0]}, "intervals.step.0: Input should be greater than 0"),
    ],
)
def test_a_profile_with_a_wrong_interval_is_refused(
    tmp_path: Path, intervals: dict[str, Any], message: str
) -> None:
    seconds = dict.fromkeys(KNOWN, 1e-6)
    (tmp_path / "mine.yaml").write_text(
        yaml.safe_dump({"description": "", "seconds": seconds, "intervals": intervals})
    )
    with pytest.raises(profiles.ProfileError, match=message):
        profiles.load(str(tmp_path / "mine.yaml"))
