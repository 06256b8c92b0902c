"""Local training and evaluation: real SGD on a user's samples, as a pure function of numpy arrays.

The law: an update is a function of (weights, user, seed), bit for bit, whatever is trained before or
beside it. (On a GPU as far as its kernels are deterministic.) Each thread has a workspace, one module
whose parameters and gradients are views of two flat vectors: a step is one backward pass and one `sub_`.
Callers set torch.set_num_threads(1): with tiny batches more threads are slower.
"""

import threading
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd import backward
from torch.nn.functional import cross_entropy

from simfl.learning.data import Split
from simfl.learning.models import MODELS, Model, Shape

F32 = NDArray[np.float32]
Seed = bytes | NDArray[np.uint8]

_PASSES = 3  # the forward product, and backward one for the input's gradient and one for the weights'


def pick_device(requested: str | None) -> str:
    """ "cpu" or "cuda". None and "auto" take a GPU if there is one.

    ValueError if "cuda" is requested where torch sees none, or for another name.
    """
    if requested in (None, "auto"):
        return "cuda" if torch.cuda.is_available() else "cpu"
    if requested not in ("cpu", "cuda"):
        raise ValueError(f"device={requested!r} must be 'auto', 'cpu' or 'cuda'")
    if requested == "cuda" and not torch.cuda.is_available():
        raise ValueError("device='cuda' was requested, but torch sees no CUDA GPU: use 'auto' or 'cpu'")
    return requested


class _Workspace(threading.local):
    """One module a thread: threading.local runs __init__ anew in each thread that comes by."""

    def __init__(self, model: Model, shape: Shape, classes: int, device: str) -> None:
        self.module = model.blank(shape, classes)
        blanks = list(self.module.named_parameters())
        d = sum(p.numel() for _, p in blanks)
        self.flat = torch.zeros(d, device=device)
        self.grad = torch.zeros(d, device=device)
        start = 0
        for name, blank in blanks:
            owner, _, leaf = name.rpartition(".")
            end = start + blank.numel()
            parameter = nn.Parameter(self.flat[start:end].view(blank.shape))
            parameter.grad = self.grad[start:end].view(blank.shape)
            setattr(self.module.get_submodule(owner), leaf, parameter)
            start = end

    def load(self, weights: F32) -> Tensor:
        """Copies weights [1, d] into the module, and returns the copy's source [d]."""
        if weights.shape != (1, self.flat.numel()) or weights.dtype != np.float32:
            expected = f"float32 (1, {self.flat.numel()})"
            raise ValueError(f"weights are {weights.dtype} {weights.shape}, not {expected}")
        source = torch.tensor(weights[0], device=self.flat.device)
        self.flat.copy_(source)
        return source


class Trainer:
    """Trains one user at a time; safe to call from several threads at once.

    split: the data. parts: the training samples of each user. model: a name in MODELS. epochs, batch_size,
    lr: E epochs of minibatch SGD with step eta_l. device: as for `pick_device`. `d` is the number of
    parameters.
    """

    def __init__(
        self,
        split: Split,
        parts: Sequence[NDArray[np.int64]],
        model: str,
        epochs: int,
        batch_size: int,
        lr: float,
        device: str | None = None,
    ) -> None:
        self.device = pick_device(device)
        self.epochs, self.batch_size, self.lr = epochs, batch_size, lr
        self._work = _Workspace(MODELS[model], split.shape, split.classes, self.device)
        self.d: int = self._work.flat.numel()
        self._forward_macs = MODELS[model].macs(split.shape, split.classes)
        self._data = [
            (
                torch.tensor(split.x_train[part], device=self.device),
                torch.tensor(split.y_train[part], device=self.device),
            )
            for part in parts
        ]
        self._test = (
            torch.tensor(split.x_test, device=self.device),
            torch.tensor(split.y_test, device=self.device),
        )

    def samples(self, user: int) -> int:
        """The user's training samples."""
        return len(self._data[user][1])

    def steps(self, user: int) -> int:
        """Minibatches in one local training, E ceil(n / batch_size)."""
        return self.epochs * -(-self.samples(user) // self.batch_size)

    def macs(self, user: int) -> int:
        """Multiply-adds in one local training, forward and backward; the update of the weights, d a step,
        is not counted."""
        return self._forward_macs * self.samples(user) * self.epochs * _PASSES

    def initial(self, seed: Seed) -> F32:
        """x^(0) [1, d]: weights uniform on +-1 / sqrt(fan-in), torch's default (Kaiming-uniform with
        a = sqrt 5); biases zero. seed: 32 bytes, also as uint8 [1, 32]."""
        generator = _generator(seed)
        flat = []
        for parameter in self._work.module.parameters():
            if parameter.dim() < 2:
                flat.append(torch.zeros(parameter.numel()))
            else:
                bound = parameter[0].numel() ** -0.5
                uniform = torch.rand(parameter.numel(), generator=generator)
                flat.append((2 * uniform - 1) * bound)
        return _row(torch.cat(flat))

    def train(self, weights: F32, user: int, seed: Seed) -> F32:
        """Delta = x^(t_i) - x_i^(E; t_i), [1, d]: downloaded minus updated (LightSecAgg eq. 24).

        weights: x^(t_i) [1, d]. E epochs of x <- x - eta_l g(x; xi) (eq. 25) on the mean cross-entropy
        of minibatches xi, in an order drawn anew for each epoch from `seed` (32 bytes, also as uint8
        [1, 32]) and nothing else. A user without samples has a zero update. ValueError for weights or a
        seed of another shape.
        """
        work = self._work
        start = work.load(weights)
        generator = _generator(seed)
        x, y = self._data[user]
        for _ in range(self.epochs if len(y) else 0):
            order = torch.randperm(len(y), generator=generator).to(self.device)
            x_batches = torch.split(x[order], self.batch_size)
            y_batches = torch.split(y[order], self.batch_size)
            for x_batch, y_batch in zip(x_batches, y_batches, strict=True):
                work.grad.zero_()
                backward(cross_entropy(work.module(x_batch), y_batch))
                work.flat.sub_(work.grad, alpha=self.lr)
        return _row(start - work.flat)

    def evaluate(self, weights: F32) -> NDArray[np.float64]:
        """(accuracy, mean cross-entropy) on the test samples, [1, 2]. weights: [1, d]."""
        self._work.load(weights)
        x, y = self._test
        with torch.no_grad():
            logits = self._work.module(x).double()
            accuracy = (logits.argmax(dim=1) == y).double().mean()
            return np.array([[accuracy.item(), cross_entropy(logits, y).item()]])


def _generator(seed: Seed) -> torch.Generator:
    raw = seed if isinstance(seed, bytes) else seed.tobytes()
    if len(raw) != 32:
        raise ValueError(f"a seed has {len(raw)} bytes, it must have 32")
    # On the CPU also for a GPU, so that the order of minibatches is the same on both. Its Mersenne Twister
    # takes 32 bits of seed and would ignore more.
    return torch.Generator().manual_seed(int.from_bytes(raw[:4], "big"))


def _row(flat: Tensor) -> F32:
    row: F32 = flat.cpu().numpy().reshape(1, -1)
    return row
