"""The time of training on a device, against planted durations of its kernels and of the CPU."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import simfl
from simfl.dataplane.eager import EagerOps
from simfl.dataplane.handles import F32, Handle
from simfl.learning.data.unpublished import Digits
from simfl.learning.device_clock import DeviceTimer, timer_of
from simfl.learning.minibatches import Cohort
from simfl.learning.models import MODELS
from simfl.learning.partition import Iid
from simfl.learning.sgd import LocalSgd
from simfl.learning.trainer import Trainer
from simfl.runs import simulation
from simfl.trace.rows import Step
from tests.engine.harness import SYNC

MS = 10**6
KERNELS_MS, WAITING_MS, BEFORE_MS, QUANTISING_MS = 7, 30, 1, 2


class FakeDevice:
    """A device whose kernels take 7 ms, for which the CPU waits busily for 30 ms, and before for 1 ms."""

    name = "fake device"

    def __init__(self, cpu_ns: list[int]) -> None:
        self.cpu_ns, self.brackets = cpu_ns, 0

    def start(self) -> None:
        self.cpu_ns[0] += BEFORE_MS * MS

    def elapsed_ns(self) -> int:
        self.brackets += 1
        self.cpu_ns[0] += WAITING_MS * MS
        return KERNELS_MS * MS


@pytest.fixture
def cpu_ns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The CPU time of the thread, which passes only as planted."""
    passed = [0]
    monkeypatch.setattr(time, "thread_time_ns", lambda: passed[0])
    return passed


def trainer(device: str = "cpu", model: str = "logistic", users: int = 20) -> Trainer:
    split = Digits().loaded(np.random.default_rng(0))
    parts = Iid().dealt(split, users, np.random.default_rng(1))
    return Trainer(split, parts, MODELS[model](), LocalSgd(5, 10, 0.3), device, "loop")


def test_time_amid_kernels_is_the_devices(cpu_ns: list[int]) -> None:
    """A training with a cutoff reads its time after each minibatch; its total time is the same."""
    device = FakeDevice(cpu_ns)
    timer = DeviceTimer(lambda: device)
    with timer.kernels():
        assert [timer.amid_kernels_ns() for _ in range(3)] == [k * KERNELS_MS * MS for k in (1, 2, 3)]
    assert timer.now_ns() == 4 * KERNELS_MS * MS
    assert timer_of("cpu").amid_kernels_ns() == cpu_ns[0]


def test_a_step_takes_device_time_and_cpu_time_outside(cpu_ns: list[int]) -> None:
    t, ops = trainer(), EagerOps(2**31 - 1)
    device = FakeDevice(cpu_ns)
    t.timer = DeviceTimer(lambda: device)
    ops.now_ns = t.timer.now_ns

    def quantising(update: Any) -> Any:
        cpu_ns[0] += QUANTISING_MS * MS
        return update

    seed = ops.secret(bytes(32))
    weights = Handle(1, t.d, F32, t.initial(bytes(32)))
    ops.begin_step((), "training")
    update = ops.train(t, weights, 0, seed, 0)
    ops.phase("upload")
    ops.clip(quantising, update)
    training, upload = ops.end_step()
    assert device.brackets == 1
    assert training.taken_ns == KERNELS_MS * MS
    assert upload.taken_ns == QUANTISING_MS * MS


def test_a_training_before_the_step_is_not_charged(cpu_ns: list[int]) -> None:
    t, ops = trainer(), EagerOps(2**31 - 1)
    t.timer = DeviceTimer(lambda: FakeDevice(cpu_ns))
    ops.now_ns = t.timer.now_ns
    t.training(t.initial(bytes(32)), 0, bytes(32), 0)
    ops.begin_step((), "upload")
    with ops.uncharged():
        t.training(t.initial(bytes(32)), 0, bytes(32), 0)
    assert [segment.taken_ns for segment in ops.end_step()] == [0]


def test_a_measured_run_charges_the_device(
    monkeypatch: pytest.MonkeyPatch, cpu_ns: list[int], tmp_path: Path
) -> None:
    device = DeviceTimer(lambda: FakeDevice(cpu_ns))
    monkeypatch.setattr("simfl.learning.trainer.timer_of", lambda name: device)
    alike = {"population.devices.slowdown": 1}
    result = simfl.run(SYNC | {"clock": "measured"}, alike, out=tmp_path / "measured")
    steps = [row for row in result.traces["fedavg"] if isinstance(row, Step)]
    trainings = [row for row in steps if row.lane == "training"]
    overhead_ns = MS
    assert [row.end - row.start for row in trainings] == [KERNELS_MS * MS] * 3
    assert {row.end - row.start for row in steps if row.lane == "protocol"} <= {0, overhead_ns}
    assert result.summary["timed_by"] == device.described
    assert device.described == "time of the kernels on fake device (events), else CPU time"

    recorded = {"clock": f"recorded:{tmp_path / 'measured'}"}
    simfl.run(SYNC | recorded, alike, out=tmp_path / "recorded")
    first, again = ((tmp_path / name / "trace.jsonl").read_text() for name in ("measured", "recorded"))
    assert first == again
    assert json.loads(first.splitlines()[0])["timed_by"] == device.described


@pytest.mark.parametrize("model", ["cnn", "logistic"])
def test_no_timed_training_has_a_new_shape(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nineteen users of 94 or 95 samples in batches of 10: a client at a time, as the warm-up trained it."""
    shapes, warmed = list[tuple[int, int, int]](), list[int]()
    trained, warm = Trainer._trained, simulation.warm

    def noted(self: Trainer, cohort: Cohort) -> Any:
        n = len(cohort.parts[0])
        shapes.append((len(cohort.parts), min(n, 10), n % 10))
        return trained(self, cohort)

    def first(*args: Any) -> None:
        warm(*args)
        warmed.append(len(shapes))

    monkeypatch.setattr(Trainer, "_trained", noted)
    monkeypatch.setattr(simulation, "warm", first)
    more = {"population.users": 19, "learning.model": model, "learning.batch_size": 10}
    simfl.run(SYNC | {"clock": "measured"}, more)
    timed = shapes[warmed[0] :]
    assert len(timed) == 19
    assert len(set(timed)) == 2
    assert set(timed) <= set(shapes[: warmed[0]])


@pytest.mark.usefixtures("cpu_ns")
def test_events_enclose_launched_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of the calls to torch.cuda, on a GPU that is not there."""
    calls = list[str]()

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing
            self.name = f"event {sum(call.startswith('record') for call in calls)}"

        def record(self) -> None:
            calls.append(f"record {self.name}")

        def synchronize(self) -> None:
            calls.append(f"wait for {self.name}")

        def elapsed_time(self, end: Any) -> float:
            calls.append(f"from {self.name} to {end.name}")
            return 7.25

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: calls.append("wait for the device"))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    timer = timer_of("cuda")
    with timer.kernels():
        calls.append("launch")
    assert calls == [
        "wait for the device",
        "record event 0",
        "launch",
        "record event 1",
        "wait for event 1",
        "from event 0 to event 1",
    ]
    assert timer.now_ns() == 7_250_000
    assert timer.described == "time of the kernels on a GPU (events), else CPU time"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_measured_training_on_a_gpu_is_its_wall_time() -> None:
    t = trainer("cuda", "cnn", users=2)
    weights = t.initial(bytes(32))
    t.training(weights, 0, bytes(32), 0)
    ratios = []
    for _ in range(5):
        torch.cuda.synchronize()
        wall_s, began_ns = time.perf_counter(), t.timer.now_ns()
        t.training(weights, 0, bytes(32), 0)
        taken_ns = t.timer.now_ns() - began_ns
        ratios.append(taken_ns / 1e9 / (time.perf_counter() - wall_s))
    assert np.median(ratios) == pytest.approx(1, abs=0.1)
