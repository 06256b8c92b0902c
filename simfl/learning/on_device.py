"""Training on a device: its arithmetic, and the cohort that its memory holds.

The prediction of memory counts the numbers that a client needs, by a forward pass of one and of two samples.
It was compared with torch's own count on a CPU (`tests/learning/test_on_device.py`). On a GPU, whose kernels
need scratch memory, it was not.

Invariant: the number of clients that are planned to train at a time depends on the scenario and on the
device's total memory. Free memory changes from run to run, and with it the rounding of updates would.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from simfl.errors import RunFailed, cut
from simfl.learning.models.model import Shape
from simfl.learning.models.rules import blanks

COPIES = 7
"""Vectors [d] of a client at the peak: its start, its model, the gradient, and four more while the gradient
is assembled from the layers' gradients."""

GRADIENTS = 2
"""Numbers at the peak for each number that the backward pass needs: itself, and a gradient or a kernel's
input."""

USED = 0.8
"""Share of a device's memory that a prediction may fill; the samples, kernels and other programs need the
rest."""


class Switch(NamedTuple):
    """A switch of torch's, and its value while simfl trains."""

    read: Callable[[], Any]
    """Returns its value."""
    write: Callable[[Any], None]
    """Sets its value."""
    value: object
    """Value during trainings."""


def _attribute(owner: object, name: str, value: object) -> Switch:
    return Switch(partial(getattr, owner, name), partial(setattr, owner, name), value)


# Torch's stubs lack the newest of their attributes.
_CUDNN: Any = torch.backends.cudnn
_MATMUL: Any = torch.backends.cuda.matmul
SWITCHES = [
    _attribute(_CUDNN, "benchmark", False),
    _attribute(_CUDNN, "allow_tf32", False),
    Switch(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest"),
]
"""Switches of each training on a GPU.

No benchmark mode, which chooses kernels by their time, and so may choose others in the next run. No TF32,
whose products have 10 bits and not float32's 23.
"""
# Since torch 2.9 each operator has a switch. The old ones leave convolutions with TF32 where a program has
# switched it on for all operators. Both are set, the old ones first: wherever code reads an old one that the
# new ones contradict, as `torch.backends.cudnn.flags` and torch's compiler do, torch raises an error.
if hasattr(_MATMUL, "fp32_precision"):
    SWITCHES += [_attribute(owner, "fp32_precision", "ieee") for owner in (_MATMUL, _CUDNN.conv, _CUDNN.rnn)]
STRICT = [
    _attribute(_CUDNN, "deterministic", True),
    Switch(torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode, "error"),
]
"""Switches of deterministic trainings only."""


def switched() -> list[Any]:
    """Return the value of each switch; None if torch cannot read it, as old and new ones contradict."""
    return [_readable(switch.read) for switch in SWITCHES + STRICT]


def _readable(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except RuntimeError:
        return None


_saved: list[Any] = []
"""The process's own values of all switches, while trainings change them."""
_training: list[None] = []
"""An item for each thread that trains."""
_lock = Lock()
"""Guards both."""


@contextmanager
def arithmetic(device: str, deterministic: bool) -> Iterator[None]:
    """Set the process's arithmetic within a context; the last thread that leaves restores it.

    Args:
        device: "cpu" or "cuda".
        deterministic: Also exclude kernels whose sums have no fixed order. Torch raises an error with the
            name of such a kernel if a model needs it.
    """
    if device == "cpu" and not deterministic:
        yield
        return
    # cuBLAS and torch read it at the first product only, and a deterministic run may follow in this process.
    # So it stays set; a user's own value stays, too.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    with _lock:
        if not _training:
            _saved[:] = switched()
        _training.append(None)
        for switch in SWITCHES + STRICT * deterministic:
            switch.write(switch.value)
    try:
        yield
    finally:
        with _lock:
            _training.pop()
            for switch, value in zip(SWITCHES + STRICT, _saved, strict=True) if not _training else ():
                if value is not None:
                    switch.write(value)


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


def total_bytes() -> int:
    """Return the bytes of the GPU, free or not."""
    return int(torch.cuda.get_device_properties(0).total_memory)


def fitting(limit: int, each_bytes: int, total: int) -> int:
    """Return the number of clients of `each_bytes` that are planned side by side, from 1 to `limit`.

    >>> fitting(2048, each_bytes=8_000_000, total=1_000_000_000), fitting(2048, 100, 1_000_000_000)
    (100, 2048)
    """
    return max(1, min(limit, int(USED * total) // each_bytes))


def refuse_several() -> None:
    """Raise RunFailed if this process sees several GPUs, as it would leave all but the first idle."""
    count = torch.cuda.device_count()
    if count > 1:
        raise RunFailed(
            f"this process sees {count} GPUs and trains on one: CUDA_VISIBLE_DEVICES=0 selects it, "
            f"and --cluster local:{count} has a process for each"
        )


def failure(
    task: str, error: RuntimeError, predicted: int | None, is_mapped: bool, deterministic: bool
) -> RunFailed:
    """Return the failure of a task on the GPU, with the remedies that fit.

    Args:
        task: A verb and its object.
        error: The error of torch, or of a library below.
        predicted: Predicted bytes of a client, if they are known.
        is_mapped: Clients are mapped by vmap, which cannot map each model.
        deterministic: Only kernels whose sums have a fixed order are allowed.
    """
    total = f"{total_bytes() / 1e9:.3g} GB"
    needs = f", predicted to take {predicted / 1e9:.3g} GB of its {total}" if predicted else f" in {total}"
    cause = next(iter(str(error).splitlines()), type(error).__name__)
    remedies = ["learning.deterministic: false"] * deterministic + ["learning.way: loop"] * is_mapped
    return RunFailed(
        f"the GPU cannot {task}{needs}: {cut(cause)}; use "
        f"{', '.join([*remedies, 'a smaller learning.batch_size'])}, or learning.device: cpu"
    )
