"""The arithmetic and the memory of a device, as far as a CPU can tell."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from simfl.errors import RunFailed
from simfl.learning import on_device
from simfl.learning.data import Split
from simfl.learning.minibatches import Cohort
from simfl.learning.models import MODELS
from simfl.learning.sgd import LocalSgd
from simfl.learning.trainer import Trainer
from tests.learning.test_ways import SIZES, cohort, updates

CLIENTS = list(range(len(SIZES)))


@pytest.fixture
def _arithmetic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restores the settings that a test makes for the process."""
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.allow_tf32, matmul.allow_tf32, cudnn.deterministic, cudnn.benchmark
    cudnn.allow_tf32 = matmul.allow_tf32 = True
    yield
    cudnn.allow_tf32, matmul.allow_tf32, cudnn.deterministic, cudnn.benchmark = before
    torch.use_deterministic_algorithms(False)
    os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)


@pytest.mark.usefixtures("_arithmetic")
@pytest.mark.parametrize("way", ["closed_form", "loop"])
def test_a_gpu_computes_without_tf32(way: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simfl.learning.trainer.ClosedForm", lambda *_: None)
    monkeypatch.setattr("simfl.learning.autograd.Autograd", lambda *_: None)
    trainer = cohort("logistic", way)
    trainer.device = "cuda"
    assert torch.backends.cuda.matmul.allow_tf32
    assert trainer._learner is None
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.are_deterministic_algorithms_enabled()
    # Or torch would refuse the products of a deterministic run after this one: it looks once a process.
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


@pytest.mark.usefixtures("_arithmetic")
def test_a_deterministic_run_settles_every_kernel() -> None:
    plain, other = cohort("cnn", "loop"), cohort("cnn", "loop")
    other._deterministic = True
    expected = updates(plain, CLIENTS)
    assert not torch.are_deterministic_algorithms_enabled()
    assert updates(other, CLIENTS).tobytes() == expected.tobytes()
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.backends.cudnn.deterministic
    assert not torch.backends.cudnn.benchmark
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


class Peak(TorchDispatchMode):
    """The most bytes that tensors made under it hold at once."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[int, int] = {}
        self.most = 0

    def __torch_dispatch__(
        self, op: Any, types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = op(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            storage = tensor.untyped_storage() if isinstance(tensor, torch.Tensor) else None
            if storage is not None and storage._cdata not in self.held:
                self.held[storage._cdata] = storage.nbytes()
                weakref.finalize(storage, self.held.pop, storage._cdata, None)
        self.most = max(self.most, sum(self.held.values()))
        return out


SLOW = pytest.mark.slow


@pytest.mark.ci(but=["femnist_cnn"])
@pytest.mark.parametrize(
    ("model", "shape", "momentum"),
    [
        ("cnn", (1, 12, 12), 0.0),
        ("lenet5", (1, 28, 28), 0.0),
        ("lenet5", (1, 28, 28), 0.9),
        ("femnist_cnn", (1, 12, 12), 0.0),
        pytest.param("mcmahan_cnn", (1, 28, 28), 0.0, marks=SLOW),
        pytest.param("mobilenet_v3", (3, 32, 32), 0.0, marks=SLOW),
        pytest.param("resnet18_gn", (3, 24, 24), 0.0, marks=SLOW),
    ],
)
def test_predicted_memory_is_near_the_measured(model: str, shape: tuple[int, ...], momentum: float) -> None:
    """Each additional client adds the predicted bytes of tensors, to a fifth, without scratch memory."""
    rng, n = np.random.default_rng(0), 20
    x, y = rng.random((3 * n, *shape), np.float32), rng.integers(0, 10, 3 * n)
    parts, sgd = list(np.arange(3 * n).reshape(3, n)), LocalSgd(1, 10, 0.1, momentum=momentum)
    trainer = Trainer(Split(x, y, x[:2], y[:2], 10), parts, MODELS[model](), sgd, "cpu", "vectorised")
    updates(trainer, [0])
    most = []
    for clients in ([0], [0, 1, 2]):
        with Peak() as peak:
            updates(trainer, clients)
        most.append(peak.most)
    assert trainer.client_bytes == pytest.approx((most[1] - most[0]) / 2, rel=0.2)


def test_saved_values_by_hand() -> None:
    convolution, linear = nn.Conv2d(1, 2, 3, padding=1), nn.Linear(2 * 4 * 4, 3)
    module = nn.Sequential(convolution, nn.ReLU(), nn.Flatten(), linear)
    # The sample, what ReLU gives (once, though the linear layer needs it too), and the logarithms.
    assert on_device.saved_values(module, (1, 4, 4)) == 16 + 32 + 3


def test_the_chunk_fits_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = cohort("cnn", "vectorised", device="cpu")
    each = trainer.client_bytes
    assert trainer.training.chunk == 64
    for free, expected in ((100 * each, 80), (10**6 * each, 2048), (0, 1)):
        for name in ("way", "chunk"):
            trainer.__dict__.pop(name, None)
        trainer.device = "cuda"
        monkeypatch.setattr(on_device, "free_bytes", lambda _, free=free: free)
        assert trainer.training.chunk == expected


def holding(trainer: Trainer, monkeypatch: pytest.MonkeyPatch, most: int) -> list[int]:
    """Give a trainer's device the memory for so many clients; return the cohorts that are tried."""
    tried, train = list[int](), trainer._learner.train

    def limited(cohort: Cohort) -> Any:
        tried.append(len(cohort.parts))
        if len(cohort.parts) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return train(cohort)

    monkeypatch.setattr(trainer._learner, "train", limited)
    return tried


@pytest.mark.ci
@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_cohort_that_is_too_large_is_halved(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = updates(cohort("logistic", "vectorised"), CLIENTS)
    trainer = cohort("logistic", "vectorised")
    tried = holding(trainer, monkeypatch, most)
    np.testing.assert_allclose(updates(trainer, CLIENTS), expected, atol=1e-12)
    assert tried == {1: [6, 3, 2, 1, 1, 1, 3, 2, 1, 1, 1], 2: [6, 3, 2, 1, 3, 2, 1], 5: [6, 3, 3]}[most]
    assert trainer.training.chunk == {1: 1, 2: 2, 5: 3}[most]


def test_too_little_memory_for_one_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = cohort("cnn", "vectorised")
    tried = holding(trainer, monkeypatch, 0)
    monkeypatch.setattr(on_device, "free_bytes", lambda _: 2_500_000)
    needed = f"{trainer.client_bytes / 1e9:.3g}"
    with pytest.raises(RunFailed) as raised:
        updates(trainer, CLIENTS)
    assert str(raised.value) == (
        "the device's memory is too small to train a single client of model cnn: "
        f"predicted {needed} GB, available 0.0025 GB; "
        "use a smaller learning.batch_size, or learning.device: cpu"
    )
    assert tried == [6, 3, 2, 1]


def test_other_errors_are_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = cohort("cnn", "vectorised")

    def fails(_: Cohort) -> Any:
        raise RuntimeError("no kernel")

    monkeypatch.setattr(trainer._learner, "train", fails)
    with pytest.raises(RuntimeError, match="no kernel"):
        updates(trainer, CLIENTS)
