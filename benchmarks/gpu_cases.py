"""Clients per second of a case on a device, each way in turn, as lines of JSON.

    python -m benchmarks.gpu_cases --device cuda logistic

`plain` builds a fresh module and a torch.optim.SGD for each client; after the ways of the product come the
candidates of `gpu_candidates`. Each way trains its clients once untimed and then until its seconds are over.
A line follows each, its rate or its failure, so that earlier results remain if the process is stopped.
`machine` in place of a case prints the device and the versions.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from benchmarks.gpu_candidates import Graphs, batched
from simfl.learning.data import Split
from simfl.learning.models import MODELS, Model, Shape
from simfl.learning.sgd import LocalSgd, WayName
from simfl.learning.trainer import Trainer, one_thread

if TYPE_CHECKING:
    from torch import nn

WAY_S = 3.0
"""Seconds in which a way is repeated at least; with small sizes, once."""

LONG_S = 10.0
"""Seconds of a warm-up beside which what it warms up is little."""


class PflCnn(Model):
    """CIFAR-10's CNN of pfl-research: 3x3 convolutions 32-32-64-64, pooled after each two, and 128 units."""

    def build(self, shape: Shape, classes: int) -> nn.Module:
        from torch import nn

        layers: list[nn.Module] = []
        into, height, width = self.image(shape, least=4)
        for out in (32, 64):
            layers += [nn.Conv2d(into, out, 3, padding=1), nn.ReLU()]
            layers += [nn.Conv2d(out, out, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            into, height, width = out, height // 2, width // 2
        head = nn.Linear(into * height * width, 128), nn.ReLU(), nn.Linear(128, classes)
        return nn.Sequential(*layers, nn.Flatten(), *head)


@dataclass(frozen=True, slots=True)
class Case:
    """A model on samples of a shape; each client has so many. goal: clients per second on a GPU.

    few: the clients that `plain` and the loop train, of `clients`; their time is proportional to them."""

    model: type[Model]
    shape: Shape
    classes: int
    samples: int
    batch_size: int
    goal: int
    clients: int
    few: int


CASES = {
    "logistic": Case(MODELS["logistic"], (1, 28, 28), 10, 60, 10, 10_000, 4096, 128),
    "pfl_cnn": Case(PflCnn, (3, 32, 32), 10, 50, 10, 1_000, 1024, 64),
    "femnist_cnn": Case(MODELS["femnist_cnn"], (1, 28, 28), 62, 200, 20, 300, 256, 32),
    "resnet18_gn": Case(MODELS["resnet18_gn"], (3, 24, 24), 100, 100, 20, 65, 128, 16),
}
SHOWN = 4096
"""Samples of the made-up data set; clients share them."""


def made_up(case: Case, clients: int) -> tuple[Split, list[np.ndarray]]:
    """Random samples, and each client's numbers: what they show does not matter here."""
    rng, count = np.random.default_rng(0), min(SHOWN, clients * case.samples)
    x = rng.random((count, *case.shape), np.float32)
    y = rng.integers(0, case.classes, count)
    parts = [rng.permutation(count)[: case.samples] for _ in range(clients)]
    return Split(x, y, x[:10], y[:10], case.classes), parts


def plain(case: Case, split: Split, parts: list[np.ndarray], device: str) -> None:
    """Train clients by the textbook's loop."""
    x_all, y_all = torch.from_numpy(split.x_train).to(device), torch.from_numpy(split.y_train).to(device)
    for part in parts:
        with torch.device(device):
            module = case.model().build(split.shape, split.classes)
        optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
        order = torch.from_numpy(part).to(device)[torch.randperm(len(part), device=device)]
        for rows in order.split(case.batch_size):
            optimiser.zero_grad()
            cross_entropy(module(x_all[rows]), y_all[rows]).backward()
            optimiser.step()


def per_second(train: Callable[[], object], clients: int, device: str, least_s: float) -> float:
    """Return the clients per second of a way over at least some seconds, after an uncounted first time.

    If that alone takes longer than `LONG_S`, or no seconds are asked for, it is the one that counts."""

    def settle() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    start, done = time.perf_counter(), 0
    train()
    settle()
    if (first_s := time.perf_counter() - start) > LONG_S or not least_s:
        return clients / first_s
    start = time.perf_counter()
    while done == 0 or time.perf_counter() - start < least_s:
        train()
        settle()
        done += clients
    return done / (time.perf_counter() - start)


def tell(**figures: Any) -> None:
    print(json.dumps(figures), flush=True)


def measure(name: str, device: str) -> None:
    """Print the case, then each way's rate, and the memory of those that train side by side."""
    case, clients, few, least_s = CASES[name], CASES[name].clients, CASES[name].few, WAY_S
    if device == "cpu":
        case, clients, few, least_s = replace(case, samples=2, batch_size=2), 2, 1, 0.0
    split, parts = made_up(case, clients)
    tell(goal=case.goal, shape=case.shape, samples=case.samples, batch_size=case.batch_size, clients=clients)
    closed = ("closed_form",) if case.model is MODELS["logistic"] else ()
    failed = []
    # The surest first: what comes before a way that takes too long is known.
    for way in ("plain", "loop", "vectorised", *closed, "batched", "graphs"):
        some = few if way in ("plain", "loop") else clients
        try:
            if way == "plain":
                train: Callable[[], object] = partial(plain, case, split, parts[:few], device)
            else:
                trainer = made(way, case, split, parts, device)
                train = partial(cohorts, trainer, range(some))
            if way in SIDE_BY_SIDE:
                tell(predicted_bytes=min(trainer.chunk, clients) * trainer.client_bytes)
            if device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            tell(clients_per_s={way: per_second(train, some, device, least_s)})
            if way in SIDE_BY_SIDE:
                tell(chunk=trainer.chunk)
            if way in SIDE_BY_SIDE and device == "cuda":
                tell(peak_bytes=torch.cuda.max_memory_allocated())
        except Exception as error:  # of any kind: the other ways go on
            tell(failed={way: f"{type(error).__name__}: {error}".splitlines()[0]})
            failed += [way] if way not in CANDIDATES else []
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


SIDE_BY_SIDE, CANDIDATES = ("vectorised", "closed_form"), ("batched", "graphs")
"""Ways of the product that take clients together, whose memory is told; and ways that are not in it."""


def made(way: str, case: Case, split: Split, parts: list[np.ndarray], device: str) -> Trainer:
    """Return a trainer of a way, of which the candidates take cohorts as `vectorised` does."""
    ours: WayName = way if way in get_args(WayName) else "vectorised"
    sgd = LocalSgd(epochs=1, batch_size=case.batch_size, lr=0.1)
    trainer = Trainer(split, parts, case.model(), sgd, device, ours)
    if way in CANDIDATES:
        trainer._learner._cohort = batched if way == "batched" else Graphs(case.model(), split.classes)
    return trainer


def cohorts(trainer: Trainer, users: range) -> None:
    """Train clients, a chunk at a time."""
    weights, first = trainer.initial(bytes(32)), 0
    while first < len(users):
        some = users[first : first + trainer.chunk]
        seeds = [user.to_bytes(32, "big") for user in some]
        trainer.train([weights] * len(some), list(some), seeds, [0] * len(some))
        first += len(some)


def machine(device: str) -> None:
    """Print the device and the versions that figures depend on. SystemExit if there is no GPU."""
    found = {"device": device, "python": sys.version.split()[0], "torch": torch.__version__}
    if device == "cuda":
        if not torch.cuda.is_available():
            raise SystemExit("torch sees no NVIDIA GPU")
        seen = torch.cuda.get_device_properties(0)
        found |= {
            "name": seen.name, "memory_bytes": seen.total_memory, "capability": f"{seen.major}.{seen.minor}",
            "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
        }  # fmt: skip
    tell(**found, numpy=np.__version__, system=platform.platform(), cores=os.cpu_count())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("case", choices=("machine", *CASES))
    asked = parser.parse_args()
    if asked.case == "machine":
        machine(asked.device)
        return
    with one_thread():
        measure(asked.case, asked.device)


if __name__ == "__main__":
    main()
