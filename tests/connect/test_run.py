"""Runs on a Dask cluster whose one worker is a thread here, and what is refused before anything is sent."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from simfl.connect import dask_engine, remote, worker
from simfl.connect.remote import checked
from simfl.connect.worker import Refusal, RunSpec
from simfl.errors import BadInput, ClusterFailed
from simfl.learning import device_choice
from simfl.runs.build import build
from simfl.runs.folder.identity import code_version, scenario_key
from simfl.scenario.load import load
from simfl.scenario.schema import Scenario
from tests.dataplane.test_remote import same_updates
from tests.engine.harness import SYNC, lines, run


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """This process is the worker: it must not stay one."""
    yield
    worker._trainers.clear()
    worker._limits.close()


@contextmanager
def scheduler() -> Iterator[str]:
    distributed = pytest.importorskip("distributed", reason="simfl[dask] is not installed")
    light = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(protocol="tcp://", host="127.0.0.1", **light) as cluster:
        yield cluster.scheduler_address.replace("tcp", "dask")


def order_of(scenario: Scenario, code: str | None = None) -> RunSpec:
    code = code or code_version()
    return RunSpec(code, scenario_key(scenario, code), scenario.model_dump(mode="json"))


def samples(path: Path, scale: float) -> None:
    x, y = np.arange(60.0, dtype=np.float32).reshape(30, 2) * scale, np.arange(30) % 2
    np.savez(path, x_train=x, y_train=y, x_test=x[:4], y_test=y[:4])


@pytest.mark.ci
def test_the_same_files_on_a_cluster(tmp_path: Path) -> None:
    overrides = {"rounds": 2, "record_updates": True, "protocols": ["fedavg", "lightsecagg"]}
    overrides |= {"learning.batch_size": 10, "learning.partial": {"within_s": 0.02, "weight": "steps"}}
    here = run(overrides, out=tmp_path / "here")
    with scheduler() as address:
        there = run(overrides, out=tmp_path / "there", cluster=address)
        assert len(worker._trainers) == 1  # made once, here
    assert lines(there) == lines(here)
    assert there.summarised().protocols["fedavg"].partial
    same_updates(there, here)
    for name in ("trace.jsonl", "summary.json", "resolved.yaml", "breakdown.csv"):
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes(), name


@pytest.mark.ci
def test_a_worker_with_other_code_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with scheduler() as address:
        monkeypatch.setattr(remote, "code_version", lambda: "0.1.0+feed")
        with pytest.raises(BadInput, match=r"^--cluster: worker tcp://127\S+ has simfl \S+, not 0\S+feed$"):
            run(cluster=address)


def test_a_worker_without_the_data_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "some.npz"
    samples(data, 1.0)
    order = order_of(load(SYNC, {"learning.dataset": {"npz": str(data)}}))
    assert worker.prepare(order) == {"fedavg": ("closed form, up to 64 clients at a time", 64)}
    worker._trainers.clear()
    samples(data, 2.0)
    with pytest.raises(Refusal, match="has files of other content under the names in the scenario"):
        worker.trainers(order)
    data.unlink()
    with pytest.raises(Refusal, match=r"cannot train this scenario: .*some\.npz"):
        worker.trainers(order)
    assert "cannot train" in str(worker.prepare(order))


def test_a_worker_that_comes_later_is_refused_too() -> None:
    answer = worker.attempt("tcp://late:1", worker.evaluate, order_of(load(SYNC), "0.0+old"), "fedavg", None)
    assert answer == f"worker tcp://late:1 has simfl {code_version()}, not 0.0+old"


def test_a_worker_keeps_the_trainers_of_two_runs() -> None:
    orders = [order_of(load(SYNC, {"seed": seed})) for seed in range(3)]
    first = worker.trainers(orders[0])
    assert worker.trainers(orders[0]) is first
    for order in orders[1:]:
        worker.trainers(order)
    assert list(worker._trainers) == [order.key for order in orders[1:]]


@pytest.mark.parametrize(
    ("address", "overrides", "message"),
    [
        ("local:2", {"clock": "measured"}, "must go without the measured clock: training elsewhere"),
        ("local:2", {"payload": "shadow"}, "payload shadow trains no model"),
        ("ray://there", {}, "'ray://there' must be dask://HOST:PORT, ray://HOST:PORT, or local:N"),
        ("local:0", {}, "'local:0' must be dask://HOST:PORT"),
        ("there:8786", {}, "'there:8786' must begin with one of dask:, local:, ray:"),
        ("dask://there", {}, "must be dask://HOST:PORT"),
    ],
)
def test_addresses_that_are_no_cluster_are_refused(
    address: str, overrides: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput, match=f"^--cluster.*{message}"):
        run(overrides, cluster=address)


def test_results_of_a_worker_are_checked() -> None:
    update = np.ones((2, 3), np.float32)
    assert checked(update, (2, 3), np.float32, list)[1] is not None
    error = ValueError("no")
    assert checked(error, (2, 3), np.float32, list) is error
    for wrong in (update[:1], update.astype(float), [1.0]):
        answer = checked(wrong, (2, 3), np.float32, list)
        assert isinstance(answer, ClusterFailed)
        assert "not float32 (2, 3)" in str(answer)


def test_the_head_of_a_cluster_uses_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    trainer = worker.trainers(order_of(load(SYNC, {"learning.device": "cuda"})))["fedavg"]
    assert trainer.device == "cuda"
    remote.Cluster.places(object(), "fedavg", trainer)  # type: ignore[arg-type]
    assert trainer.device == "cpu"


def test_a_unit_of_several_versions_of_the_weights() -> None:
    """Each client begins with its own, and each version is sent once."""
    scenario = load(SYNC, {"learning.way": "loop"})
    order = order_of(scenario)
    trainer = worker.trainers(order)["fedavg"]
    sent: list[Any] = []

    class Here:
        def held(self, weights: Any) -> Any:
            sent.append(weights)
            return weights

        def submit(self, function: Any, entry: str, args: Any, done: Any) -> None:
            done(function(order, entry, *args))

    one, two = trainer.initial(bytes(32)), trainer.initial(bytes([1]) * 32)
    calls = [(one, 0, bytes(32), 0, None), (two, 1, bytes(32), 0, 1), (one, 2, bytes(32), 1, None)]
    got: list[Any] = []
    remote.Trainings(Here(), "fedavg", trainer).send(calls, got.extend)  # type: ignore[arg-type]
    assert [id(weights) for weights in sent] == [id(one), id(two)]
    for update, expected in zip(got, trainer.training.many(calls), strict=True):
        np.testing.assert_array_equal(update, expected)


@pytest.mark.parametrize(
    ("visible", "files", "expected"),
    [(None, 2, ["0", "1", "0"]), ("3,5", 8, ["3", "5", "3"]), ("", 2, [""] * 3), (None, 0, [None] * 3)],
)
def test_each_worker_here_sees_one_gpu(
    visible: str | None, files: int, expected: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers inherit the selection of a job manager, which has all of its GPUs; one process uses one."""
    monkeypatch.setattr(dask_engine.glob, "glob", lambda pattern: [f"/dev/nvidia{k}" for k in range(files)])
    monkeypatch.setattr(dask_engine.signal, "signal", lambda *_: None)
    monkeypatch.setattr(dask_engine.logging, "disable", lambda: None)
    monkeypatch.setattr(device_choice, "processes", 1)
    config = pytest.importorskip("dask.config", reason="simfl[dask] is not installed")
    seen = []
    for name in range(3):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        with config.set({dask_engine.PROCESSES: 3}):
            dask_engine.dask_setup(SimpleNamespace(name=name))
        seen.append(os.environ.get("CUDA_VISIBLE_DEVICES"))
    assert seen == expected
    # Three processes on two GPUs: two of them share one, and all plan half of its memory.
    assert device_choice.processes == (2 if expected[0] else 1)


@pytest.mark.ci
def test_workers_look_for_a_gpu_and_not_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU is here, where the one worker is too: its refusal ends the run, and the build does not."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    cuda = {"learning.device": "cuda", "learning.model": "cnn"}
    with pytest.raises(BadInput, match=r"device: device='cuda' was requested, but torch sees no CUDA GPU"):
        run(cuda)
    assert build(load(SYNC, cuda), trains_here=False).trainer.device == "cpu"
    with scheduler() as address, pytest.raises(BadInput) as refused:
        run(cuda, cluster=address)
    assert re.match(r"--cluster: worker tcp://127\S+ cannot train this scenario: ", str(refused.value))
    assert "torch sees no CUDA GPU" in str(refused.value)
