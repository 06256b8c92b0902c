"""The device that trains: a GPU that is imitated, and the work that is worth one."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from simfl.errors import RunFailed
from simfl.learning.data import Split
from simfl.learning.device_choice import MIN_GPU_MACS, pick_device
from simfl.learning.models import MODELS
from simfl.learning.sgd import LocalSgd
from simfl.learning.trainer import Trainer


@pytest.fixture
def _gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with one GPU, as far as torch is asked."""
    monkeypatch.setattr("simfl.learning.device_choice._GPU_FILES", (__file__,))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)


def trainer(model: str, clients: int, shape: tuple[int, ...] = (1, 28, 28), **given: object) -> Trainer:
    x, y = np.zeros((20, *shape), np.float32), np.zeros(20, np.int64)
    parts = [np.arange(20)] * clients
    return Trainer(Split(x, y, x, y, 10), parts, MODELS[model](), LocalSgd(1, 10, 0.1), **given)  # type: ignore[arg-type]


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simfl.learning.device_choice._GPU_FILES", (__file__,))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto") == pick_device("cpu") == "cpu"
    with pytest.raises(ValueError, match="'cuda' was requested, but torch sees no CUDA GPU"):
        pick_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert pick_device("auto") == pick_device("cuda") == "cuda"
    assert pick_device("cpu") == "cpu"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere torch is asked")
def test_without_a_driver_torch_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("simfl.learning.device_choice._GPU_FILES", ("/dev/no such driver",))
    assert pick_device("auto") == "cpu"
    assert pick_device("cuda") == "cuda"


@pytest.mark.usefixtures("_gpu")
@pytest.mark.parametrize("selected", ["", "-1"])
def test_a_hidden_gpu_is_not_asked_for(selected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else this process could use none later, as a Ray worker may have to."""

    def asked() -> bool:
        raise AssertionError("torch was asked")

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", selected)
    monkeypatch.setattr(torch.cuda, "is_available", asked)
    assert pick_device("auto") == "cpu"


@pytest.mark.usefixtures("_gpu")
@pytest.mark.parametrize(
    ("model", "shape", "clients", "device"),
    [
        ("logistic", (1, 8, 8), 3000, "cpu"),  # 650 parameters, and no chunk of 2,048 has the work
        ("logistic", (1, 28, 28), 100, "cpu"),
        ("logistic", (1, 28, 28), 1000, "cuda"),
        ("lenet5", (1, 28, 28), 2, "cpu"),
        ("lenet5", (1, 28, 28), 100, "cuda"),
    ],
)
def test_auto_follows_the_work(model: str, shape: tuple[int, ...], clients: int, device: str) -> None:
    chosen = trainer(model, clients, shape)
    assert chosen.device == device
    assert (chosen.step_macs >= MIN_GPU_MACS) == (device == "cuda")
    assert trainer(model, clients, shape, device="cuda").device == "cuda"


@pytest.mark.usefixtures("_gpu")
def test_the_work_is_of_clients_that_train_together() -> None:
    """A round of 5 of 3,000 users, and a loop, whose steps are of one client."""
    one = 3 * 10 * 7840
    assert trainer("logistic", 3000).step_macs == 2048 * one
    assert trainer("logistic", 3000, cohort=5).step_macs == 5 * one
    assert trainer("logistic", 3000, way="loop").step_macs == one


@pytest.mark.usefixtures("_gpu")
def test_the_choice_of_auto_is_stated() -> None:
    assert trainer("logistic", 100).device_choice == (
        "training is on the CPU: a step of the clients that train together has 2.35e+07 multiply-adds, and "
        "device auto takes a GPU from 1e+08"
    )
    assert trainer("logistic", 1000).device_choice.startswith("training is on the GPU: ")
    assert trainer("logistic", 100, device="cuda").device_choice == ""


@pytest.mark.usefixtures("_gpu")
def test_a_driver_without_a_gpu_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert trainer("logistic", 1000).device_choice.endswith("from 1e+08, but torch sees none")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere torch is asked")
def test_no_choice_is_stated_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simfl.learning.device_choice._GPU_FILES", ())
    assert trainer("logistic", 1000).device_choice == ""


@pytest.mark.usefixtures("_gpu")
def test_several_gpus_in_one_process_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    one = trainer("lenet5", 100)
    with pytest.raises(RunFailed) as raised:
        one.initial(bytes(32))
    assert str(raised.value) == (
        "this process sees 8 GPUs and trains on one: CUDA_VISIBLE_DEVICES=0 selects it, and --cluster "
        "local:8 has a process for each"
    )


@pytest.mark.usefixtures("_gpu")
def test_counted_work_does_not_depend_on_the_device() -> None:
    """So a modelled time is a profile's, whatever computes the update."""
    cpu, gpu = (trainer("lenet5", 3, device=device) for device in ("cpu", "cuda"))
    assert gpu.device == "cuda"
    assert cpu.work(0) == gpu.work(0)
