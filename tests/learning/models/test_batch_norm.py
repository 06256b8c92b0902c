"""Batch norm against torch's own in training mode."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from simfl.learning.models.rules import BatchNorm
from tests.learning.models.made import normal


def pair(eps: float = 1e-5) -> tuple[BatchNorm, nn.BatchNorm2d]:
    ours, theirs = BatchNorm(4, eps).double(), nn.BatchNorm2d(4, eps).double()
    with torch.no_grad():
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            mine.copy_(normal(4, seed=len(mine)))
            other.copy_(mine)
    return ours, theirs


@pytest.mark.parametrize("eps", [1e-5, 0.5])
def test_it_is_torchs_in_training_mode(eps: float) -> None:
    ours, theirs = pair(eps)
    x = normal(3, 4, 5, 2, dtype=torch.float64)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, z = ours(a), theirs(b)
    torch.testing.assert_close(y, z)
    (y**3).sum().backward()
    (z**3).sum().backward()
    torch.testing.assert_close(a.grad, b.grad)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)
    torch.testing.assert_close(ours.bias.grad, theirs.bias.grad)


def test_evaluation_and_training_are_one() -> None:
    ours, _ = pair()
    x = normal(3, 4, 2, 2, dtype=torch.float64)
    assert torch.equal(ours.train()(x), ours.eval()(x))
    assert not list(ours.buffers())


@pytest.mark.parametrize("shape", [(1, 4), (1, 4, 1, 1)])
def test_one_value_a_channel_gives_the_shift(shape: tuple[int, ...]) -> None:
    ours, _ = pair()
    x = normal(*shape, dtype=torch.float64).requires_grad_()
    y = ours(x)
    torch.testing.assert_close(y.flatten(), ours.bias)
    (y**2).sum().backward()
    assert not x.grad.any()
    assert not ours.weight.grad.any()


def test_one_sample_has_the_statistics_of_its_positions() -> None:
    x = normal(1, 4, 3, 3, dtype=torch.float64)
    mean, var = x.mean((2, 3), keepdim=True), x.var((2, 3), keepdim=True, correction=0)
    torch.testing.assert_close(BatchNorm(4, affine=False)(x), (x - mean) / (var + 1e-5).sqrt())


@pytest.mark.parametrize("shape", [(3, 4), (1, 4), (2, 4, 3, 3), (1, 4, 1, 1)])
def test_vmapped(shape: tuple[int, ...]) -> None:
    ours, _ = pair()
    x = normal(5, *shape, dtype=torch.float64)
    own = {name: normal(5, 4, dtype=torch.float64) for name in ("weight", "bias")}

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return (functional_call(ours, parameters, (x,)) ** 3).sum()

    together = vmap(grad(loss, argnums=(0, 1)))(own, x)
    for k in range(5):
        gradients, of_x = grad(loss, argnums=(0, 1))({name: p[k] for name, p in own.items()}, x[k])
        torch.testing.assert_close(together[1][k], of_x)
        for name, g in gradients.items():
            torch.testing.assert_close(together[0][name][k], g)
