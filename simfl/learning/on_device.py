"""Training on a device: its arithmetic, and the cohort that its memory holds.

The prediction of memory counts the numbers that a client needs, by a forward pass of one and of two samples.
It was compared with torch's own count on a CPU (`tests/learning/test_on_device.py`). On a GPU, whose kernels
need scratch memory, it was not.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch import Tensor, nn

from simfl.learning.models.model import Shape
from simfl.learning.models.rules import blanks

COPIES = 7
"""Vectors [d] of a client at the peak: its start, its model, the gradient, and four more while the gradient
is assembled from the layers' gradients."""

GRADIENTS = 2
"""Numbers at the peak for each number that the backward pass needs: itself, and a gradient or a kernel's
input."""

USED = 0.8
"""Share of the free memory that a prediction may fill; kernels need the rest."""


def settle_arithmetic(device: str, deterministic: bool) -> None:
    """Set the process's arithmetic: no TF32, whose products have 10 bits and not float32's 23.

    Args:
        device: "cpu" or "cuda".
        deterministic: Also exclude kernels whose sums have no fixed order, for the rest of the process. Torch
            raises an error with the name of such a kernel if a model needs it.
    """
    # cuBLAS and torch read it at the first product only, and a deterministic run may follow in this process.
    # A user's own value stays.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if device == "cuda":
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    if deterministic:
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
        torch.use_deterministic_algorithms(True)


def saved_values(module: nn.Module, shape: Shape, tokens: bool = False) -> int:
    """Return the numbers that a forward pass keeps for the backward pass, for each sample.

    Tensors that it keeps for any number of samples, such as weights, are not counted. They cancel in the
    difference of two passes, of two samples and of one.
    """

    def saved(samples: int) -> int:
        kept: dict[int, Tensor] = {}

        def keep(tensor: Tensor) -> Tensor:
            # By storage: views of one tensor are counted once. The dictionary keeps the tensor, so that no
            # address is used again.
            kept[tensor.untyped_storage().data_ptr()] = tensor
            return tensor

        parameter = next(module.parameters())
        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            logits = module(blanks(module, (samples, *shape), tokens))
            # In place of the loss, whose backward pass needs as much.
            torch.log_softmax(logits, 1)
            values = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
        return values // parameter.element_size()

    return saved(2) - saved(1)


def client_bytes(d: int, saved: int, batch_size: int, passes: int, itemsize: int, momentum: bool) -> int:
    """Return the bytes of a client that is trained beside others.

    Args:
        d: Parameters.
        saved: Numbers of `saved_values`.
        batch_size: Samples of a minibatch.
        passes: E n, for each of which the schedule has a number (8 bytes) and a weight.
        itemsize: Bytes of a number.
        momentum: There is a velocity [d].
    """
    return itemsize * ((COPIES + momentum) * d + GRADIENTS * batch_size * saved) + (8 + itemsize) * passes


def free_bytes(device: str) -> int:
    """Return the bytes of a GPU that are free, or that torch holds without using them; 0 for a CPU."""
    if device != "cuda":
        return 0
    # torch keeps freed memory for itself, which the driver then reports as used.
    unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return int(torch.cuda.mem_get_info()[0]) + unused


def fitting(limit: int, each_bytes: int, free: int) -> int:
    """Return the number of clients of `each_bytes` that fit side by side, from 1 to `limit`.

    >>> fitting(2048, each_bytes=8_000_000, free=1_000_000_000), fitting(2048, 100, 1_000_000_000)
    (100, 2048)
    """
    return max(1, min(limit, int(USED * free) // each_bytes))


def out_of_memory(attempt: Callable[[], object]) -> bool:
    """Make an attempt; return True if the device's memory was too small for it, after it was freed again."""
    try:
        attempt()
    # Only this error: any other is a fault of the model (test_on_device.py:
    # test_other_errors_are_not_taken_for_it).
    except torch.OutOfMemoryError:
        pass
    else:
        return False
    # Not within `except`: there the error still holds the frames whose tensors fill the memory.
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return True
