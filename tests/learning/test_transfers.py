"""The bus between a host and a GPU, on a machine without one: tensors of torch's meta device have no content,
and all that training there sends, fetches or reads on the way shows.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.gpu_candidates import Graphs, batched, captured
from simfl.learning import workspace
from simfl.learning.autograd import Autograd
from simfl.learning.closed_form import ClosedForm
from simfl.learning.losses import CrossEntropy
from simfl.learning.minibatches import Cohort
from simfl.learning.models import MODELS
from simfl.learning.models.model import Model
from simfl.learning.models.networks import ResidualBlock
from simfl.learning.on_device import arithmetic
from simfl.learning.sgd import LocalSgd
from tests.learning.models.made import made
from tests.learning.test_ways import made_up, normed

aten = torch.ops.aten
COPIES = {aten._to_copy.default, aten.copy_.default}
READS = {aten._local_scalar_dense.default, aten.nonzero.default, aten.is_nonzero.default, aten.equal.default}


class Bus(TorchDispatchMode):
    """Transfers between the host and the meta device, in order; `mixed` is work on tensors of both."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []

    def __torch_dispatch__(
        self, op: Any, types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        given = {one.device.type for one in tree_leaves((args, named)) if isinstance(one, Tensor)}
        if op in READS and "meta" in given:
            self.events.append(f"read by {op}")
        where = named.get("device")
        if op is aten._to_copy.default and where is not None and torch.device(where).type not in given:
            self.events.append("fetched" if "meta" in given else "sent")
            return torch.zeros(args[0].shape, dtype=named.get("dtype") or args[0].dtype, device=where)
        if len(given) > 1:
            self.events.append("sent" if op in COPIES else f"mixed in {op}")
        if op is aten.index.Tensor and "meta" in given:
            by_truth = any(one is not None and one.dtype == torch.bool for one in args[1])
            self.events.append("read by conditions" if by_truth else "gathered")
        return op(*args, **named)


class Python(TorchFunctionMode):
    """Transfers that a dispatch mode does not see: Python's lists as indices, and tensors of them."""

    def __init__(self, bus: Bus) -> None:
        super().__init__()
        self.bus = bus

    def __torch_function__(
        self, function: Any, types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if function in (Tensor.__getitem__, Tensor.__setitem__) and args[0].is_meta:
            indices = args[1] if isinstance(args[1], tuple) else (args[1],)
            if any(isinstance(index, list | np.ndarray) for index in indices):
                self.bus.events.append("sent")
        if function in (torch.tensor, torch.as_tensor) and (kwargs or {}).get("device") is not None:
            self.bus.events.append("sent")
        return function(*args, **(kwargs or {}))


def crossing(train: Callable[[], object]) -> list[str]:
    with Bus() as bus, Python(bus):
        train()
    return bus.events


def grouped_and_residual(shape: tuple[int, ...], classes: int) -> nn.Module:
    """The layers of ResNet-18 with group norm, few and small."""
    return nn.Sequential(
        nn.Conv2d(shape[0], 4, 3, 2, 1, bias=False), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        ResidualBlock(4, 6, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, classes),
    )  # fmt: skip


SIZES = (5, 4, 4, 2)
SGD = LocalSgd(2, 3, 0.1, momentum=0.9, weight_decay=0.01, mu=0.1)


def cohort(learner: Any, sgd: LocalSgd = SGD, clients: int = 4) -> Cohort:
    parts = [np.arange(a, b) for a, b in itertools.pairwise(np.cumsum((0, *SIZES)))][:clients]
    start = learner.initial(bytes(32))
    seeds = [bytes([k]) * 32 for k in range(clients)]
    steps = [sgd.epochs * -(-len(part) // sgd.batch_size) for part in parts]
    return Cohort(np.stack([start] * clients), parts, seeds, sgd, [0.1] * clients, steps)


def learner(model: Model, shape: tuple[int, ...], way: str, device: str = "meta") -> Any:
    split = made_up(shape, SIZES)
    if way == "closed_form":
        return ClosedForm(split, device, np.float32)
    learner = Autograd(model, split, device, np.float32, way != "loop", CrossEntropy())
    record = captured if device == "cuda" else lambda lane: lane.minibatch
    candidates = {"batched": batched, "graphs": Graphs(model, 5, 2, record)}
    learner._cohort = candidates.get(way, learner._cohort)
    return learner


FEMNIST = MODELS["femnist_cnn"](), (1, 12, 12)
GROUPED = made(grouped_and_residual, "grouped"), (2, 4, 4)
NORMED = made(normed, "normed"), (2, 4, 4)
LOGISTIC = MODELS["logistic"](), (1, 5, 4)
PLAIN = LocalSgd(2, 3, 0.1)
TRIED = [
    *itertools.product([FEMNIST, GROUPED, NORMED], ["loop", "vectorised"], [SGD, PLAIN]),
    *itertools.product([LOGISTIC], ["closed_form"], [SGD, PLAIN]),
    *itertools.product([FEMNIST, GROUPED], ["batched"], [SGD]),
    *itertools.product([FEMNIST, GROUPED], ["graphs"], [PLAIN]),
]


def named(part: Any) -> str:
    if isinstance(part, LocalSgd):
        return "plain" if part.plain else "everything"
    return part if isinstance(part, str) else part[0].name


def held(events: list[str]) -> None:
    """Everything is sent before the first minibatch is gathered, and the models are fetched in the end."""
    first = events.index("gathered")
    assert set(events[:first]) == {"sent"}
    assert set(events[first:-1]) == {"gathered"}
    assert events[-1] == "fetched"


@pytest.mark.ci(but=["logistic-closed_form-plain"])
@pytest.mark.parametrize(("tried", "way", "sgd"), TRIED, ids=named)
def test_a_chunk_crosses_the_bus_twice(tried: tuple[Model, tuple[int, ...]], way: str, sgd: LocalSgd) -> None:
    """Once to the device and once back; the loop's chunk is a client."""
    one = learner(*tried, way)
    some = cohort(one, sgd, clients=1 if way == "loop" else 4)
    held(crossing(lambda: one.train(some)))


@pytest.mark.parametrize("sgd", [SGD, PLAIN], ids=named)
@pytest.mark.parametrize(("tried", "way"), [(GROUPED, "vectorised"), (LOGISTIC, "closed_form")], ids=named)
def test_a_common_start_is_sent_once(
    tried: tuple[Model, tuple[int, ...]], way: str, sgd: LocalSgd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four clients with one model; FedProx in closed form has a term of each, by its step size."""
    one, sent = learner(*tried, way), list[int]()
    to_tensor = workspace.to_tensor

    def noted(x: np.ndarray, device: str) -> Tensor:
        sent.append(x.size)
        return to_tensor(x, device)

    monkeypatch.setattr(workspace, "to_tensor", noted)
    some = cohort(one, sgd)
    start = some.starts[0]
    own = 4 * start.size if sgd.mu and way == "closed_form" else 0
    shared = replace(some, starts=np.broadcast_to(start, some.starts.shape))
    crossing(lambda: one.train(shared))
    assert [size for size in sent if size >= start.size] == [own] * bool(own) + [start.size]


class OnDisk:
    """Images that are read when they are asked for, by numbers that the host has."""

    def __init__(self, x: np.ndarray) -> None:
        self.shape, self.dtype, self._x = x.shape, x.dtype, x

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, numbers: np.ndarray) -> np.ndarray:
        assert isinstance(numbers, np.ndarray)
        return self._x[numbers]


@pytest.mark.ci
@pytest.mark.parametrize("tried", [NORMED, GROUPED], ids=["normed", "grouped"])
@pytest.mark.parametrize("side_by_side", [False, True], ids=["loop", "vectorised"])
def test_images_on_disk_are_sent_and_nothing_comes_back(
    tried: tuple[Model, tuple[int, ...]], side_by_side: bool
) -> None:
    split = replace(made_up(tried[1], SIZES), x_train=OnDisk(made_up(tried[1], SIZES).x_train))
    one = Autograd(tried[0], split, "meta", np.float32, side_by_side, CrossEntropy())
    some = cohort(one, PLAIN)
    *amid, last = crossing(lambda: one.train(some))
    assert set(amid) == {"sent", "gathered"}
    assert last == "fetched"


@pytest.mark.gpu
@pytest.mark.parametrize(("tried", "way", "sgd"), TRIED, ids=named)
def test_a_gpu_is_waited_for_once_a_chunk(
    tried: tuple[Model, tuple[int, ...]], way: str, sgd: LocalSgd
) -> None:
    """By torch's own warning, on a GPU: the meta device does not show transfers within kernels."""
    one = learner(*tried, way, "cuda")
    some = cohort(one, sgd, clients=1 if way == "loop" else 4)
    one.train(some)
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with arithmetic("cuda", False), warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            one.train(some)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len([each for each in seen if "called a synchronizing" in str(each.message)]) == 1


def test_transfers_within_a_step_are_seen() -> None:
    """Each of these would make the host wait on a GPU."""
    x, on_host = torch.zeros(3, 2, device="meta"), torch.ones(3)
    for work, expected in (
        (lambda: x[[0, 2]], "sent"),
        (lambda: x + on_host[:, None], "mixed in aten.add.Tensor"),
        (lambda: x.sum().item(), "read by aten._local_scalar_dense.default"),
        (lambda: x[x > 0], "read by conditions"),
        (lambda: x.cpu(), "fetched"),
        (lambda: torch.tensor(2, device="meta"), "sent"),
        (lambda: x.copy_(on_host[:, None]), "sent"),
    ):

        def attempt(work: Callable[[], object] = work) -> None:
            with suppress(Exception):
                work()

        assert expected in crossing(attempt)
