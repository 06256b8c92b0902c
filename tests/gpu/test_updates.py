"""Updates of a GPU: those of the CPU up to rounding, for each model; and twice the same bits, if asked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from simfl.errors import RunFailed
from simfl.learning.data import Split
from simfl.learning.data.dataset import Dtype
from simfl.learning.minibatches import Cohort
from simfl.learning.models import MODELS
from simfl.learning.on_device import arithmetic
from simfl.learning.sgd import LocalSgd, WayName
from simfl.learning.trainer import Trainer, one_thread
from tests.learning.models.test_registry import OF_NUMBERS, SMALL

pytestmark = pytest.mark.gpu

DEVICE = os.environ.get("SIMFL_TEST_DEVICE", "cuda")
"""The CPU shows that these tests are in order; a GPU, that it computes as the CPU does."""


@pytest.fixture(autouse=True)
def _settled() -> Iterator[None]:
    with one_thread():
        yield


NORMED = ("mobilenet_v3", "efficientnet_b0")
"""Models with batch norm."""


def updates(
    name: str, way: WayName, device: str, dtype: Dtype = np.float64, deterministic: bool = False
) -> np.ndarray:
    """The updates of three clients of a few samples.

    Batch statistics of few values enlarge every rounding, and from step to step: models that have them take
    one step, on samples that leave 2x2 positions at their last layer."""
    normed = name in NORMED
    rng, shape, sizes = np.random.default_rng(0), (1, 33, 33) if normed else SMALL.get(name, (7,)), (5, 4, 2)
    x, y = rng.standard_normal((11, *shape)).astype(np.float32), rng.integers(0, 5, 11)
    if name == "char_lstm":
        x = rng.integers(0, 5, (11, *shape))
    parts = np.split(np.arange(11), np.cumsum(sizes)[:-1])
    sgd = LocalSgd(epochs=1, batch_size=8 if normed else 3, lr=0.01)
    trainer = Trainer(Split(x, y, x, y, 5), parts, MODELS[name](), sgd, device, way, dtype,
                      deterministic=deterministic)  # fmt: skip
    seeds = [bytes([k]) * 32 for k in range(3)]
    return trainer.train([trainer.initial(bytes(32))] * 3, range(3), seeds, [0] * 3)


@cache
def of_the_cpu(name: str) -> np.ndarray:
    return updates(name, "loop", "cpu")


CASES = [
    *((name, way) for name in OF_NUMBERS for way in ("loop", "vectorised")),
    ("logistic", "closed_form"),
    ("softmax", "closed_form"),
    ("char_lstm", "loop"),  # cuDNN has no kernel for several at once
]


@pytest.mark.parametrize(("name", "way"), CASES)
def test_updates_equal_the_cpus(name: str, way: WayName) -> None:
    expected = of_the_cpu(name)
    length = np.linalg.norm(expected)
    assert length > 1e-3
    assert np.linalg.norm(updates(name, way, DEVICE) - expected) < 1e-9 * length
    # In float32, batch statistics of a few values enlarge a rounding a thousand times, on a CPU already.
    within = 0.05 if name in NORMED else 1e-3
    assert np.linalg.norm(updates(name, way, DEVICE, np.float32) - expected) < within * length


@pytest.mark.parametrize("name", ["logistic", "lenet5", "femnist_cnn", "resnet18_gn"])
@pytest.mark.parametrize("way", ["loop", "vectorised", "closed_form"])
def test_deterministic_runs_equal_bit_for_bit(name: str, way: WayName) -> None:
    if way == "closed_form" and name != "logistic":
        pytest.skip("no closed form")
    one, other = (updates(name, way, DEVICE, np.float32, deterministic=True) for _ in range(2))
    assert np.linalg.norm(one) > 1e-3
    assert one.tobytes() == other.tobytes()


def test_products_are_those_of_float32() -> None:
    with arithmetic(DEVICE, False):
        products()


def products() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((256, 256)).astype(np.float32) for _ in range(2))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    device = [torch.from_numpy(part).to(DEVICE) for part in (a, b)]
    error = np.abs((device[0] @ device[1]).cpu().numpy() - exact).max() / np.abs(exact).max()
    assert error < 2e-5  # TF32's 10 bits leave about 1e-3
    kernel = device[1].reshape(64, 64, 4, 4)
    image = device[0].reshape(1, 64, 32, 32)
    wide = torch.nn.functional.conv2d(image.cpu().double(), kernel.cpu().double())
    narrow = torch.nn.functional.conv2d(image, kernel).cpu().double()
    assert float((narrow - wide).abs().max() / wide.abs().max()) < 2e-5


def resnets(clients: int) -> Trainer:
    rng = np.random.default_rng(0)
    x, y = rng.random((8, 3, 24, 24), np.float32), rng.integers(0, 5, 8)
    parts, model = [np.arange(8)] * clients, MODELS["resnet18_gn"]()
    return Trainer(Split(x, y, x, y, 5), parts, model, LocalSgd(1, 4, 0.1), DEVICE, "vectorised")


def test_the_chunk_follows_the_total_memory() -> None:
    trainer = resnets(1)
    assert 1 <= trainer.chunk <= 2048
    if DEVICE == "cuda":
        assert trainer.chunk * trainer.client_bytes < torch.cuda.get_device_properties(0).total_memory


@pytest.mark.skipif(DEVICE != "cuda", reason="the memory of a GPU")
def test_too_little_memory_is_one_error_after_smaller_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, tried = resnets(4), list[int]()
    weights, train = trainer.initial(bytes(32)), trainer._learner.train

    def trying(cohort: Cohort) -> Any:
        tried.append(len(cohort.parts))
        return train(cohort)

    monkeypatch.setattr(trainer._learner, "train", trying)
    torch.cuda.empty_cache()
    whole = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 2**24) / whole)
    try:
        with pytest.raises(RunFailed, match=r"a single client of model resnet18_gn, predicted to take"):
            trainer.train([weights] * 4, range(4), [bytes(32)] * 4, [0] * 4)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert tried == [4, 2, 1]
    trainer.train([weights], [0], [bytes(32)], [0])
