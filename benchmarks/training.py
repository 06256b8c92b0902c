"""Local training beside the plain way (a fresh module and torch.optim.SGD a client), in the same run.

    python benchmarks/training.py [model ...]

10 clients of 100 samples, E = 1, B = 10, one thread; FEMNIST's CNN also with 50 clients of 20. A figure is
how many times the clients per second of the plain loop: medians of rounds in which all ways take turns. The
last column is two threads, each its half of the clients, against one. A GPU is measured beside the CPU where
there is one.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from simfl.learning.data import Split
from simfl.learning.models import MODELS
from simfl.learning.sgd import LocalSgd, WayName
from simfl.learning.trainer import Trainer, one_thread

ROUNDS = 5
SGD = LocalSgd(epochs=1, batch_size=10, lr=0.1)
CASES = (
    ("logistic", (1, 28, 28), 10, 10, 100),
    ("mcmahan_cnn", (1, 28, 28), 10, 10, 100),
    ("femnist_cnn", (1, 28, 28), 62, 50, 20),
    ("lenet5", (3, 32, 32), 10, 10, 100),
    ("mobilenet_v3", (3, 32, 32), 10, 10, 20),
)
"""(model, shape of a sample, classes, clients, samples of each)."""


def made_up(shape: tuple[int, ...], classes: int, samples: int) -> Split:
    """Random samples: what they show does not matter here."""
    rng = np.random.default_rng(0)
    x, y = rng.random((samples, *shape), np.float32), rng.integers(0, classes, samples)
    return Split(x, y, x[:10], y[:10], classes)


def plain(name: str, split: Split, parts: list[np.ndarray], device: str) -> Callable[[], None]:
    """The textbook's loop."""
    x_all, y_all = torch.from_numpy(split.x_train).to(device), torch.from_numpy(split.y_train).to(device)

    def train() -> None:
        for part in parts:
            module = MODELS[name]().build(split.shape, split.classes).to(device)
            optimiser = torch.optim.SGD(module.parameters(), lr=SGD.lr)
            for rows in torch.from_numpy(part)[torch.randperm(len(part))].split(SGD.batch_size):
                optimiser.zero_grad()
                cross_entropy(module(x_all[rows]), y_all[rows]).backward()
                optimiser.step()

    return train


def measure(name: str, shape: tuple[int, ...], classes: int, clients: int, samples: int, device: str) -> str:
    """A line of the table."""
    split = made_up(shape, classes, clients * samples)
    parts = [np.arange(k * samples, (k + 1) * samples) for k in range(clients)]
    users, seeds = range(clients), [bytes([k]) * 32 for k in range(clients)]
    weights = Trainer(split, parts, MODELS[name](), SGD, device, "loop").initial(bytes(32))

    def in_way(way: WayName, threads: int = 1) -> Callable[[], object]:
        trainer = Trainer(split, parts, MODELS[name](), SGD, device, way)

        def half(mine: range) -> None:
            some = [seeds[k] for k in mine]
            trainer.train([weights] * len(mine), list(mine), some, [0] * len(mine))

        if threads == 1:
            return lambda: half(users)
        pool = ThreadPoolExecutor(threads)
        halves = [range(k, clients, threads) for k in range(threads)]
        return lambda: list(pool.map(half, halves))

    other: WayName = "closed_form" if name == "logistic" else "vectorised"
    runs: dict[str, Callable[[], object]] = {"plain": plain(name, split, parts, device)}
    runs |= {"loop": in_way("loop"), other: in_way(other)}
    if device == "cpu":
        runs["two threads"] = in_way("loop", 2)
    taken: dict[str, list[float]] = {way: [] for way in runs}
    for _ in range(ROUNDS + 1):
        for way, run in runs.items():
            start = time.perf_counter()
            run()
            if device == "cuda":
                torch.cuda.synchronize()
            taken[way].append(time.perf_counter() - start)
    seconds = {way: statistics.median(times[1:]) for way, times in taken.items()}
    ratios = [f"{seconds['plain'] / seconds[way]:6.2f}" for way in ("loop", other)]
    rates = [f"{clients / seconds[way]:9.1f}" for way in ("plain", "loop", other)]
    threads = f"{seconds['loop'] / seconds['two threads']:6.2f}" if "two threads" in runs else "     -"
    return f"{name:<14}{device:<5}{clients:>8}{''.join(rates)}  {ratios[0]}  {ratios[1]} {other:<12}{threads}"


def main() -> None:
    wanted = sys.argv[1:]
    print(f"{'model':<14}{'':<5}{'clients':>8}{'plain':>9}{'loop':>9}{'cohort':>9}  {'loop':>6}{'cohort':>8}"
          f" {'':<12}{'2 thr.':>6}")  # fmt: skip
    print(f"{'':<14}{'':<5}{'':>8}{'clients per second':^27}  {'x plain':^14}{'':<12}{'x loop':>7}")
    with one_thread():
        for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
            for case in CASES:
                if not wanted or case[0] in wanted:
                    print(measure(*case, device), flush=True)


if __name__ == "__main__":
    main()
