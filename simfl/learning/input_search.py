"""Inputs found by descent through a known model: those that explain an update, and those of a class.

Invariant: nothing is drawn here, so the same arguments give the same images; a search starts from the inputs
that it is given. Only `simfl.privacy.attacks` searches: no training needs it.
"""

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from simfl.learning.data.dataset import F32, I64
from simfl.learning.models.model import Model, Shape
from simfl.learning.models.rules import blank
from simfl.learning.workspace import slots

_TINY = 1e-30  # in place of a norm of zero
_FALLS = (3 / 8, 5 / 8, 7 / 8)
"""Parts of a search after which its step falls to a tenth (Geiping et al. 2020, their reference code)."""


class InputSearch:
    """Searches of inputs in [0, 1] of a model under weights [d] that the searcher knows."""

    def __init__(self, model: Model, shape: Shape, classes: int) -> None:
        self.shape, self.module = shape, blank(model, shape, classes, tried=True)
        self.slots = slots(self.module)

    def logits(self, weights: F32, x: F32) -> F32:
        """Return the logits [n, classes] of inputs x [n, *shape]."""
        with torch.no_grad():
            z: F32 = self._logits(torch.from_numpy(weights), torch.from_numpy(x)).numpy()
        return z

    def explaining(
        self, weights: F32, updates: F32, labels: I64, starts: F32, steps: int, lr: float, variation: float
    ) -> tuple[F32, F32]:
        """Return inputs whose gradients point as updates do, [K, n, *shape], and what each search cost, [K].

        The cost is 1 - cos(gradient, update) + variation TV(x) (Geiping et al. 2020, eq. 4), descended by
        the signs of its gradient under Adam. updates [K, d]: downloaded minus updated, as gradients point.
        labels [K, n]: known to the searcher. starts: [K, n, *shape].
        """
        known = torch.from_numpy(weights)
        units = torch.from_numpy(updates / np.maximum(np.linalg.norm(updates, axis=1), _TINY)[:, None])
        y, x = torch.from_numpy(labels), torch.from_numpy(starts.copy())

        def loss(flat: Tensor, inputs: Tensor, own: Tensor) -> Tensor:
            return cross_entropy(self._logits(flat, inputs), own)

        def cost(inputs: Tensor, unit: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
            g = grad(loss)(known, inputs, own)
            total = 1 - (g @ unit) / g.norm().clamp_min(_TINY) + variation * _variation(inputs)
            return total, total

        slope = vmap(grad(cost, has_aux=True))
        first, second = torch.zeros_like(x), torch.zeros_like(x)
        best, least = x.clone(), torch.full((len(x),), torch.inf)
        for step in range(1, steps + 1):
            g, now = slope(x, units, y)
            better = now < least
            best[better], least[better] = x[better], now[better]
            g = g.sign()
            first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g**2
            size = lr * 0.1 ** sum(step > part * steps for part in _FALLS)
            moved = (first / (1 - 0.9**step)) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)
            x = (x - size * moved).clamp(0, 1)
        return best.numpy(), least.numpy()

    def of_class(self, weights: F32, label: int, steps: int, lr: float) -> F32:
        """Return the input [*shape] that a model takes most surely for a class (Fredrikson et al. 2015,
        Algorithm 1), from an input of zeros.

        The cost is -log p(label) and not 1 - p(label), which has no slope where a model is sure, as one of
        random weights is of everything. Steps are as long whatever the weights' size.
        """
        known, x = torch.from_numpy(weights), torch.zeros(1, *self.shape)
        y = torch.tensor([label])

        def cost(inputs: Tensor) -> tuple[Tensor, Tensor]:
            total = cross_entropy(self._logits(known, inputs), y)
            return total, total

        slope, best, least = grad(cost, has_aux=True), x, torch.tensor(torch.inf)
        for _ in range(steps):
            g, now = slope(x)
            if now < least:
                best, least = x, now
            x = (x - lr * g / g.abs().max().clamp_min(_TINY)).clamp(0, 1)
        found: F32 = best[0].numpy()
        return found

    def _logits(self, flat: Tensor, x: Tensor) -> Tensor:
        z: Tensor = functional_call(self.module, {slot.name: slot.view(flat) for slot in self.slots}, (x,))
        return z


def _variation(x: Tensor) -> Tensor:
    """Return the mean absolute difference of neighbouring pixels of images [..., h, w]; 0 of other inputs."""
    if x.dim() < 3:
        return x.sum() * 0
    return x.diff(dim=-1).abs().mean() + x.diff(dim=-2).abs().mean()
