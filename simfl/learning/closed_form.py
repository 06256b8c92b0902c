"""Softmax regression without autograd.

For the logits z = W x and mean cross-entropy, dL/dz = softmax(z) - onehot(y). So a step of K clients is two
batched products, with elementwise operations between them. On a CPU the arrays are numpy's, and torch is not
imported. On a GPU they are torch's tensors, which have the same operations. The bias is one more column of W,
for an input that is always 1. Updates equal the loop's up to rounding (`tests/learning/test_closed_form.py`).
"""

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from simfl.learning.data.dataset import F32, I64, Array, Dtype, Floats, Split
from simfl.learning.minibatches import Cohort, generator, kaiming, schedules

_GATHERED = 2**16
"""Numbers that are gathered at a time: few calls for small clients, little memory for large ones."""


class HostSamples:
    """All training samples in the memory of the host or on disk; `workspace.Samples` is for a device."""

    arrays: Any = np
    """Module of the arrays' functions."""

    def __init__(self, split: Split, dtype: Dtype) -> None:
        self.dtype, self._x, self._y = dtype, split.x_train, split.y_train

    def numbers(self, rows: I64) -> I64:
        """Return numbers of samples for `gather`, unchanged."""
        return rows

    def gather(self, rows: I64) -> tuple[Floats, I64]:
        """Return samples by their numbers of any shape: x [n, *shape of a sample] and y of the numbers'
        shape."""
        # Lazy images take one axis of numbers.
        return floats(self._x[rows.reshape(-1)], self.dtype), self._y[rows]

    def put(self, array: Floats) -> Floats:
        """Return an array in the type of the arithmetic."""
        return array.astype(self.dtype, copy=False)


def floats(x: Array, dtype: Dtype) -> Floats:
    """Return pixels as numbers: bytes 0 .. 255 become 0 .. 1."""
    # In step with `workspace.inputs`: both divide in the type of the arithmetic.
    return x.astype(dtype) / dtype(255) if x.dtype == np.uint8 else x.astype(dtype, copy=False)


class ClosedForm:
    """Softmax regression on a split; safe for several threads at once.

    Args:
        split: Training and test samples.
        device: "cpu" or "cuda".
        dtype: Type of the arithmetic.
    """

    def __init__(self, split: Split, device: str, dtype: Dtype) -> None:
        self.split, self.inputs, self._dtype = split, prod(split.shape), dtype
        self.samples: Any = HostSamples(split, dtype)
        if device != "cpu":
            from simfl.learning.workspace import Samples

            self.samples = Samples(split, device, dtype)

    def initial(self, seed: bytes) -> F32:
        """Return x^(0) [d], as `Workspace.initial` draws it."""
        # The draws of `Workspace.initial` in their order, where biases draw nothing.
        weights = kaiming(generator(seed[:16]), (self.split.classes, self.inputs))
        return np.concatenate([weights.reshape(-1), np.zeros(self.split.classes, np.float32)])

    def saved(self) -> int:
        """Return the numbers that a step holds for a sample: its inputs with the 1, logits and targets."""
        return self.inputs + 1 + 2 * self.split.classes

    def train(self, cohort: Cohort) -> Floats:
        """Return x_i^(E; t) [K, d] of K clients (LightSecAgg eq. 25)."""
        samples, sgd, starts = self.samples, cohort.sgd, cohort.starts
        xp, K, C, inputs = samples.arrays, len(starts), self.split.classes, self.inputs
        # A model's vector has all weights and then the biases, as torch lists the parameters of a linear
        # layer.
        rows = starts if starts.strides[0] else starts[:1]
        start = np.concatenate([rows[:, :-C].reshape(-1, C, inputs), rows[:, -C:, None]], axis=2)
        # A client has one step size. So the step size multiplies the small factors of a step in advance,
        # instead of a gradient of the size of W in each step.
        lrs = np.array(cohort.lrs)[:, None, None]
        anchor = samples.put(lrs * sgd.mu * (start if sgd.mu else 0.0))
        pull, onehot = samples.put(lrs * (sgd.weight_decay + sgd.mu)), samples.put(np.eye(C))
        W = samples.put(start)
        if len(start) < K:
            # Copied on the device, to which the clients' common start was sent once.
            W = W.repeat(K, 0) if xp is np else W.repeat(K, 1, 1)
        velocity: Any = xp.zeros_like(W) if sgd.momentum else None
        # Numpy's reductions without their wrappers, which take as much time as a step of one small client.
        largest, total = (np.maximum.reduce, np.add.reduce) if xp is np else (xp.amax, xp.sum)
        # Classes first: numpy reduces the first axis several times as fast as a short last one.
        width = min(sgd.batch_size, max(map(len, cohort.parts)))
        logits = samples.put(np.empty((C, K, width)))
        for step, (active, inward, shares, targets) in enumerate(self._steps(cohort, lrs, onehot)):
            # Views: the step below changes W itself. Clients with a step are the first ones (`Schedule`).
            weights, z = W[:active], logits[:, :active]
            # Written through a view, into the order in which the reductions are fast.
            xp.matmul(weights, inward.swapaxes(1, 2), out=z.swapaxes(0, 1))
            # Without the largest logit no exponential overflows; the quotient below stays the same.
            z -= largest(z, axis=0)
            xp.exp(z, out=z)
            z *= shares / total(z, axis=0)
            z -= targets
            g = z.swapaxes(0, 1) @ inward
            if sgd.weight_decay + sgd.mu:
                g += pull[:active] * weights - anchor[:active]
            if sgd.momentum:
                g += sgd.momentum * velocity[:active]
                velocity[:active] = g
            weights -= g
            # Compared here too: most cohorts have no cutoff, and are spared a call in each step.
            if cohort.cutoff is not None and cohort.over(step + 1):
                break
        W = np.asarray(W if xp is np else W.cpu())
        return np.concatenate([W[:, :, :inputs].reshape(K, -1), W[:, :, inputs]], axis=1)

    def _steps(self, cohort: Cohort, lrs: Floats, onehot: Any) -> Iterator[tuple[int, Any, Any, Any]]:
        """Yield for each step its clients, samples and weights.

        Args:
            cohort: K clients.
            lrs: Step sizes [K, 1, 1].
            onehot: The identity [C, C].

        Yields:
            The number k of clients with a step; samples with a 1 behind each, [k, B, inputs + 1]; weights
            times step size, [k, B]; the same as targets, [C, k, B].
        """
        samples, xp = self.samples, self.samples.arrays
        for plan in schedules(cohort):
            shares, rows = samples.put(plan.weights * lrs[:, 0]), samples.numbers(plan.rows)
            _, K, width = plan.rows.shape
            at_once = max(1, _GATHERED // (K * width * self.inputs + 1))
            for first in range(0, len(plan.active), at_once):
                # The number of active clients falls, so that of the first step is enough for the block.
                block = slice(first, first + at_once), slice(0, plan.active[first])
                x, y = samples.gather(rows[block])
                x = x.reshape(*y.shape, self.inputs)
                x = xp.concatenate([x, xp.ones_like(x[..., :1])], axis=-1)
                # Filling is sample 0 with share 0, so its target and its part of the gradient are 0.
                targets = onehot[:, y] * shares[block]
                for k, active in enumerate(plan.active[block[0]]):
                    yield active, x[k, :active], shares[first + k, :active], targets[:, k, :active]

    def logits(self, weights: Floats, x: Array) -> Floats:
        """Return the logits [n, classes] of samples under a model [d]."""
        W, b = np.split(weights, [-self.split.classes])
        z: Floats = floats(x, self._dtype).reshape(len(x), -1) @ W.reshape(-1, self.inputs).T + b
        return z
