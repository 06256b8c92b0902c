"""A GPU that is imitated on a CPU: torch's functions take `cuda` for the CPU, and torch.cuda has one device.

It shows what Python code does with a GPU, from the choice of the device to the error messages. It does not
show a tensor that is on the wrong device: `test_transfers.py` does, by torch's meta device. It holds for the
thread that enters it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from simfl.learning import on_device

TOTAL_BYTES = 80 * 10**9
PRODUCTS = {functional.linear, functional.conv2d, torch.matmul, torch.baddbmm}


class FakeGpu(TorchFunctionMode):
    """The imitation, and a record of its use."""

    def __init__(self) -> None:
        super().__init__()
        self.pinned: list[int] = []
        """Bytes of each array that came through pinned memory."""
        self.loose: list[str] = []
        """Products outside of `on_device.arithmetic`."""
        self.waits = 0
        """Calls that wait for the device."""

    def __torch_function__(
        self, function: Any, types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given, named = [_here(one) for one in args], {k: _here(one) for k, one in (kwargs or {}).items()}
        if function is Tensor.pin_memory:
            self.pinned.append(given[0].nbytes)
            return given[0]
        tensors = [one for one in tree_leaves(given) if isinstance(one, Tensor)]
        if function in PRODUCTS and not on_device._training and not any(one.is_meta for one in tensors):
            self.loose.append(function.__name__)
        return function(*given, **named)


def _here(argument: Any) -> Any:
    is_device = isinstance(argument, str | torch.device)
    return "cpu" if is_device and str(argument).partition(":")[0] == "cuda" else argument


class Event:
    """An event on a device that computes at once."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at_s = time.perf_counter()

    def synchronize(self) -> None:
        """Nothing is under way."""

    def elapsed_time(self, end: Event) -> float:
        return 1e3 * (end.at_s - self.at_s)


@contextmanager
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpu]:
    """Imitate a GPU in this thread, on which `auto` trains any work."""
    gpu = FakeGpu()

    def waited() -> None:
        gpu.waits += 1

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("simfl.learning.device_choice._GPU_FILES", (__file__,))
    monkeypatch.setattr("simfl.learning.trainer.MIN_GPU_MACS", 0)
    for name, imitated in {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "get_device_name": lambda: "an imitated GPU",
        "get_device_properties": lambda index: SimpleNamespace(
            name="an imitated GPU", total_memory=TOTAL_BYTES, major=9, minor=0
        ),
        "synchronize": waited,
        "empty_cache": waited,
        "Event": Event,
    }.items():
        monkeypatch.setattr(torch.cuda, name, imitated)
    with gpu:
        yield gpu
