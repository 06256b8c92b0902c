"""Parameters that are no part of an update: frozen ones, and those that each user has for itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from simfl.learning.data import Split
from simfl.learning.models import Model, Shape
from simfl.learning.models.facts import facts
from simfl.learning.sgd import LocalSgd, WayName
from simfl.learning.trainer import Trainer

BASE = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)


class Adapter(Model):
    """A frozen first layer, and a head that is trained."""

    given: bool = True

    def build(self, shape: Shape, classes: int) -> nn.Module:
        base = nn.Linear(*shape, 4).requires_grad_(False)
        return nn.Sequential(base, nn.ReLU(), nn.Linear(4, classes))

    def frozen(self) -> Mapping[str, Any]:
        return {"0.weight": BASE, "0.bias": np.ones(4)} if self.given else {}


class Personal(Model):
    """A shared first layer, and each user's own head."""

    own: ClassVar[tuple[str, ...]] = ("2.",)

    def build(self, shape: Shape, classes: int) -> nn.Module:
        return nn.Sequential(nn.Linear(*shape, 4), nn.ReLU(), nn.Linear(4, classes))


class HeadFirst(Personal):
    """The same, with the head before the layer that is shared."""

    own: ClassVar[tuple[str, ...]] = ("head",)

    def build(self, shape: Shape, classes: int) -> nn.Module:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.head, self.base = nn.Linear(4, classes), nn.Linear(*shape, 4)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                logits: torch.Tensor = self.head(self.base(x).relu())
                return logits

        return Net()


def split(n: int = 23) -> Split:
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((n, 6), np.float32), rng.integers(0, 3, n)
    return Split(x, y, x, y, 3)


def trainer(model: Model, way: WayName = "loop", batch: int = 4) -> Trainer:
    parts = [np.arange(0, 9), np.arange(9, 23)]
    return Trainer(split(), parts, model, LocalSgd(2, batch, 0.3), "cpu", way, np.float64)


def updates(made: Trainer) -> np.ndarray:
    weights = [made.initial(bytes(32))] * 2
    return made.train(weights, [0, 1], [bytes([k]) * 32 for k in (1, 2)], [0, 0])


@pytest.mark.ci(but=["[model0-15]"])
@pytest.mark.parametrize(("model", "d"), [(Adapter(), 4 * 3 + 3), (Personal(), 6 * 4 + 4), (HeadFirst(), 28)])
def test_they_are_no_part_of_d(model: Model, d: int) -> None:
    known = facts(model, (6,), 3)
    assert (known.d, known.macs, known.partly) == (d, 24 + 12, True)
    found = updates(trainer(model))
    assert found.shape == (2, d)
    assert np.linalg.norm(found) > 1e-3
    np.testing.assert_allclose(updates(trainer(model, "vectorised")), found, rtol=1e-9, atol=1e-12)
    assert "not sent" in trainer(model).beyond_attacks


@pytest.mark.parametrize("given", [True, False])
def test_frozen_layers_stay_as_they_are_given(given: bool) -> None:
    made, x = trainer(Adapter(given=given), batch=64), split().x_test[:9]
    start = made.initial(bytes(32)).astype(np.float64)
    zero = np.zeros((1, 15), np.float32)
    zero[0, 12:] = 1
    W, b = torch.from_numpy(start[0, :12].reshape(3, 4)), torch.from_numpy(start[0, 12:])
    if given:
        hidden = torch.from_numpy(np.maximum(x @ BASE.T + 1, 0)).double()
        head = [W.clone().requires_grad_(), b.clone().requires_grad_()]
        for _ in range(2):
            loss = cross_entropy(hidden @ head[0].T + head[1], torch.from_numpy(split().y_train[:9]))
            steps = torch.autograd.grad(loss, head)
            head = [(p - 0.3 * g).detach().requires_grad_() for p, g in zip(head, steps, strict=True)]
        after = torch.cat([head[0].ravel(), head[1]]).detach().numpy()
        np.testing.assert_allclose(updates(made)[0], start[0] - after, atol=1e-6)
    again = trainer(Adapter(given=given))
    assert np.array_equal(made.evaluate(zero), again.evaluate(zero))
    assert np.array_equal(made.initial(bytes(32)), again.initial(bytes(32)))


def test_own_parameters_start_anew_each_time() -> None:
    made = trainer(Personal(), batch=64)
    first = updates(made)
    assert np.array_equal(updates(made), first)
    assert np.array_equal(updates(trainer(Personal(), batch=64)), first)


def test_own_parameters_move_while_they_are_trained() -> None:
    """Against torch's SGD over all parameters, of which the update shows the shared ones."""
    made = trainer(Personal(), batch=64)
    start, own = made.initial(bytes(32)).astype(np.float64)[0], made._learner.work.own_start  # type: ignore[union-attr]
    module = Personal().build((6,), 3).double()
    values = torch.from_numpy(np.concatenate([start, own.astype(np.float64)]))
    nn.utils.vector_to_parameters(values, module.parameters())
    optimiser, data = torch.optim.SGD(module.parameters(), lr=0.3), split()
    x = torch.from_numpy(np.asarray(data.x_train[:9])).double()
    for _ in range(2):
        optimiser.zero_grad()
        loss = cross_entropy(module(x), torch.from_numpy(data.y_train[:9]))
        loss.backward()
        optimiser.step()
    after = nn.utils.parameters_to_vector(module.parameters()).detach().numpy()[:28]
    np.testing.assert_allclose(updates(made)[0], start - after, atol=1e-9)


class AllFrozen(Adapter):
    def build(self, shape: Shape, classes: int) -> nn.Module:
        return super().build(shape, classes).requires_grad_(False)


class Misnamed(Adapter):
    def frozen(self) -> Mapping[str, Any]:
        return {"0.wight": BASE}


class Misshapen(Adapter):
    def frozen(self) -> Mapping[str, Any]:
        return {"0.weight": BASE.T}


class AllOwn(Personal):
    own: ClassVar[tuple[str, ...]] = ("0.", "2.")


class OwnNothing(Personal):
    own: ClassVar[tuple[str, ...]] = ("tail",)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (AllFrozen(), "all its parameters are frozen: there is nothing to train"),
        (Misnamed(), r"frozen\(\) gives '0.wight' \[4, 6\]: it has no frozen parameter of this name"),
        (
            Misshapen(),
            r"gives '0.weight' \[6, 4\]: it has a frozen parameter \[4, 6\] of this name",
        ),
        (AllOwn(), "all its parameters are its users' own: there is nothing to send"),
        (OwnNothing(), "own names 'tail', with which no trained parameter begins"),
    ],
)
def test_parameters_that_cannot_be_sent_or_filled_are_refused(model: Model, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        facts(model, (6,), 3)
