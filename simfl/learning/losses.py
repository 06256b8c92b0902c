"""The loss that local training descends and the test reports.

Training takes the mean of a minibatch. Side by side, filled-up minibatches need the loss of each sample, so
that is what a loss gives.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Literal

from simfl.config.kinds import KindBlock, KindRegistry

if TYPE_CHECKING:
    from torch import Tensor


class Loss(KindBlock):
    """A loss; a call is all that one of your own needs.

    >>> import torch
    >>> class Hinge(Loss):
    ...     margin: float = 1.0
    ...     def __call__(self, logits, y):
    ...         right = logits.gather(1, y[:, None])
    ...         return (logits - right + self.margin).clamp(min=0).sum(1) - self.margin
    >>> Hinge()(torch.tensor([[2.0, 1.5, 0.0]]), torch.tensor([0]))
    tensor([0.5000])
    """

    @abstractmethod
    def __call__(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each sample [n], by logits [n, classes] and labels [n]. It draws nothing, keeps
        nothing, and is made of torch's functions, through which gradients flow and which `vmap` can map."""

    def mean(self, logits: Tensor, y: Tensor) -> Tensor:
        return self(logits, y).mean()


class CrossEntropy(Loss):
    """The cross-entropy of the softmax: -log p of the label."""

    kind: Literal["cross_entropy"] = "cross_entropy"

    def __call__(self, logits: Tensor, y: Tensor) -> Tensor:
        from torch.nn.functional import cross_entropy

        return cross_entropy(logits, y, reduction="none")

    def mean(self, logits: Tensor, y: Tensor) -> Tensor:
        from torch.nn.functional import cross_entropy

        return cross_entropy(logits, y)


LOSSES = KindRegistry("loss", Loss, (CrossEntropy,), "losses")  # type: ignore[type-abstract]

if TYPE_CHECKING:
    AnyLoss = Loss
else:
    AnyLoss = LOSSES.annotation()
