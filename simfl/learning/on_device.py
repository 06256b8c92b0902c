"""Training on a device: its arithmetic, and the cohort that its memory holds.

The prediction of memory counts the numbers that a client needs, which a forward pass of two samples tells. It
was compared with torch's own count on a CPU; on a GPU, where kernels take scratch memory, it has not been.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch import Tensor, nn

from simfl.learning.models.model import Shape
from simfl.learning.models.rules import blanks

COPIES = 7
"""Vectors [d] of a client at the peak: its start, its model, the gradient, and while this is assembled from
those of the layers, four more."""

GRADIENTS = 2
"""Numbers at the peak for each that the backward pass needs: itself, and a gradient or a kernel's input."""

USED = 0.8
"""The share of the free memory that a prediction may fill; kernels need the rest."""


def settle_arithmetic(device: str, deterministic: bool) -> None:
    """Switch TF32 off, whose 10-bit products are not float32's; deterministic: also every kernel whose sums
    have no fixed order, for the whole process. Where a model needs such a kernel, torch says which."""
    # cuBLAS and torch read it at the first product and never again, and a deterministic run may come later.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if device == "cuda":
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    if deterministic:
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
        torch.use_deterministic_algorithms(True)


def saved_values(module: nn.Module, shape: Shape, tokens: bool = False) -> int:
    """Return the numbers that a forward pass keeps for the backward one, a sample. Those that it keeps
    whatever the number of samples, as weights, are not counted."""

    def saved(samples: int) -> int:
        kept: dict[int, Tensor] = {}

        def keep(tensor: Tensor) -> Tensor:
            kept[tensor.untyped_storage().data_ptr()] = tensor
            return tensor

        some = next(module.parameters())
        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            logits = module(blanks(module, (samples, *shape), tokens))
            torch.log_softmax(logits, 1)
            values = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
        return values // some.element_size()

    return saved(2) - saved(1)


def client_bytes(d: int, saved: int, batch_size: int, passes: int, itemsize: int, momentum: bool) -> int:
    """Return the bytes that a client takes among others at its side: its vectors [d], a minibatch's forward
    and backward pass, and the number and the weight of each of its E n samples."""
    return itemsize * ((COPIES + momentum) * d + GRADIENTS * batch_size * saved) + (8 + itemsize) * passes


def free_bytes(device: str) -> int:
    """Return the bytes of a GPU that are free, or that torch holds without using them; 0 for a CPU."""
    if device != "cuda":
        return 0
    held = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return int(torch.cuda.mem_get_info()[0]) + held


def fitting(most: int, each_bytes: int, free: int) -> int:
    """Return the clients, at least 1, that fit side by side.

    >>> fitting(2048, each_bytes=8_000_000, free=1_000_000_000), fitting(2048, 100, 1_000_000_000)
    (100, 2048)
    """
    return max(1, min(most, int(USED * free) // each_bytes))


def out_of_memory(attempt: Callable[[], object]) -> bool:
    """Make an attempt; return True if the device's memory was too small for it, and make that free again."""
    try:
        attempt()
    except torch.OutOfMemoryError:
        pass
    else:
        return False
    # Here, not above: the error holds the frames whose tensors fill the memory.
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return True
