"""The ways of training that `make gpu` tries beside the product's: each trains as the loop does."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from torch import nn

from benchmarks.gpu_candidates import Graphs, batched, captured
from simfl.learning.models import MODELS
from simfl.learning.models.model import Model, Shape
from simfl.learning.sgd import LocalSgd, WayName
from simfl.learning.trainer import Trainer, one_thread
from tests.learning.models.made import made
from tests.learning.models.test_registry import SMALL
from tests.learning.test_transfers import grouped_and_residual
from tests.learning.test_ways import EVERYTHING, made_up, normed

SIZES = (5, 3, 0, 2)
GROUPED = made(grouped_and_residual, "grouped"), (2, 9, 8)
SLOW = ("mcmahan_cnn", "vgg11", "resnet18_gn")
OURS = [
    (MODELS[name](), SMALL[name]) for name in ("logistic", "softmax", "cnn", "femnist_cnn", "lenet5", *SLOW)
]


def each(*tried: tuple[Model, Shape]) -> list[Any]:
    return [
        pytest.param(*one, id=one[0].name, marks=pytest.mark.slow if one[0].name in SLOW else ())
        for one in tried
    ]


def updates(model: Model, shape: Shape, way: Any, device: str, **sgd: Any) -> np.ndarray:
    parts = [np.arange(a, b) for a, b in itertools.pairwise(np.cumsum((0, *SIZES)))]
    settings = LocalSgd(**{"epochs": 2, "batch_size": 2, "lr": 0.02, **sgd})
    known: WayName = "loop" if way == "loop" else "vectorised"
    trainer = Trainer(made_up(shape, SIZES), parts, model, settings, device, known, np.float64)
    if way != "loop":
        trainer._learner._cohort = way
    seeds = [bytes([k]) * 32 for k in range(len(SIZES))]
    with one_thread():
        return trainer.train([trainer.initial(bytes(32))] * len(SIZES), range(len(SIZES)), seeds, [0] * 4)


def graphs(model: Model, device: str) -> Graphs:
    """On a CPU the steps are made where a GPU would replay them."""
    return Graphs(model, 5, 2, captured if device == "cuda" else lambda lane: lane.minibatch)


def held(got: np.ndarray, expected: np.ndarray) -> None:
    assert np.linalg.norm(expected) > 1e-3
    assert not got[2].any()
    assert np.linalg.norm(got - expected) < 1e-9 * np.linalg.norm(expected)


@pytest.mark.ci(but=["cnn"])
@pytest.mark.parametrize(("model", "shape"), each(GROUPED, *OURS))
def test_batched_products_train_as_the_loop(model: Model, shape: Shape, device: str) -> None:
    extra = EVERYTHING if model.name in ("logistic", "cnn") else {}
    expected = updates(model, shape, "loop", "cpu", **extra)
    held(updates(model, shape, batched, device, **extra), expected)


@pytest.mark.ci(but=["logistic"])
@pytest.mark.parametrize(("model", "shape"), each(GROUPED, OURS[0], OURS[3], OURS[-1]))
def test_graphs_train_as_the_loop(model: Model, shape: Shape, device: str) -> None:
    expected = updates(model, shape, "loop", "cpu")
    held(updates(model, shape, graphs(model, device), device), expected)


def test_a_candidate_refuses_models_that_it_cannot_train() -> None:
    shape, model, split = (2, 4, 4), made(normed, "normed"), made(grouped_convolution, "split")
    with pytest.raises(ValueError, match=r"^batched products have no layer BatchNorm$"):
        updates(model, shape, batched, "cpu")
    with pytest.raises(ValueError, match=r"^batched products have no grouped or dilated convolution$"):
        updates(split, shape, batched, "cpu")
    with pytest.raises(ValueError, match=r"^the graphs are of plain SGD, without batch statistics$"):
        updates(model, shape, graphs(model, "cpu"), "cpu")
    cnn = MODELS["cnn"]()
    with pytest.raises(ValueError, match=r"^the graphs are of plain SGD, without batch statistics$"):
        updates(cnn, shape, graphs(cnn, "cpu"), "cpu", momentum=0.5)
    with pytest.raises(ValueError, match=r"^CUDA graphs need a GPU$"):
        updates(cnn, shape, Graphs(cnn, 5), "cpu")


def grouped_convolution(shape: Shape, classes: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.Flatten(), nn.Linear(16, classes))


def test_a_module_is_left_as_it_was() -> None:
    model = MODELS["cnn"]()
    loop = updates(model, SMALL["cnn"], "loop", "cpu")
    updates(model, SMALL["cnn"], batched, "cpu")
    assert updates(model, SMALL["cnn"], "loop", "cpu").tobytes() == loop.tobytes()
