"""Clients per second of a case on a device, each way in turn, as lines of JSON.

    python -m benchmarks.gpu_cases --device cuda logistic

`plain` builds a fresh module and a torch.optim.SGD for each client; after the ways of the product come the
candidates of `gpu_candidates`. Each way trains its clients once untimed and then until its seconds are over.
A line follows each, its rate or its failure, so that earlier results remain if the process is stopped.
In place of a case, `check` prints the device, the versions, and what is wrong with them; `policy` the choices
of `device: auto`; `profile` the three longest kernels of a training; and `paper` the table of docs/gpu.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from benchmarks.gpu_candidates import Graphs, batched
from simfl.learning import closed_form
from simfl.learning.autograd import vectorised
from simfl.learning.data import Split
from simfl.learning.models import MODELS, Model, Shape
from simfl.learning.models.rules import watching
from simfl.learning.on_device import USED
from simfl.learning.sgd import LocalSgd, WayName
from simfl.learning.trainer import Trainer, one_thread

if TYPE_CHECKING:
    from torch import nn

WAY_S = 2.5
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


def check(device: str) -> None:
    """Print the device, the versions that figures depend on, and doubts about them.

    Raises:
        SystemExit: There is no GPU, or it does not compute.
    """
    found = {"device": device, "python": sys.version.split()[0], "torch": torch.__version__}
    doubts = []
    if sys.version_info[:2] not in ((3, 11), (3, 12)):
        doubts.append(f"Python {found['python']}: simfl is tested with 3.11 and 3.12")
    if device == "cuda":
        if torch.version.cuda is None:
            raise SystemExit(f"torch {torch.__version__} is not built for CUDA: install a CUDA build of it")
        if not torch.cuda.is_available():
            raise SystemExit(
                f"torch {torch.__version__} is built for CUDA {torch.version.cuda} and sees no NVIDIA GPU: "
                "look at nvidia-smi, at CUDA_VISIBLE_DEVICES, and whether the driver is new enough"
            )
        seen = torch.cuda.get_device_properties(0)
        free, total = torch.cuda.mem_get_info()
        if free < USED * total:
            doubts.append(f"{free / 1e9:.3g} of {total / 1e9:.3g} GB are free: other programs use this GPU")
        found |= {
            "name": seen.name, "memory_bytes": seen.total_memory, "capability": f"{seen.major}.{seen.minor}",
            "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
        }  # fmt: skip
    # A torch without kernels for this GPU, a broken cuBLAS or cuDNN: each shows at its first product.
    image, kernel = torch.ones(1, 1, 4, 4, device=device), torch.ones(1, 1, 4, 4, device=device)
    try:
        sums = (image[0, 0] @ kernel[0, 0]).sum(), torch.nn.functional.conv2d(image, kernel).sum()
        if [float(one) for one in sums] != [64.0, 16.0]:
            raise SystemExit(f"wrong products on {device}: {sums}, not 64 and 16")
    except RuntimeError as error:
        raise SystemExit(f"no products on {device}: {str(error).splitlines()[0]}") from error
    tell(**found, doubts=doubts, numpy=np.__version__, system=platform.platform(), cores=os.cpu_count())


def trainer_of(name: str, device: str, small: bool) -> tuple[Trainer, int]:
    """Return the trainer of a case as a run has it, and its clients: two with one sample each if small."""
    case, clients = CASES[name], CASES[name].clients
    if small:
        case, clients = replace(case, samples=1, batch_size=1), 2
    split, parts = made_up(case, clients)
    sgd = LocalSgd(epochs=1, batch_size=case.batch_size, lr=0.1)
    return Trainer(split, parts, case.model(), sgd, device), clients


def policy() -> None:
    """Print for each case, with all its clients and with one, what `device: auto` chooses, and why."""
    choices = {}
    for name, case in CASES.items():
        split, parts = made_up(case, case.clients)
        sgd = LocalSgd(epochs=1, batch_size=case.batch_size, lr=0.1)
        for count in (case.clients, 1):
            trainer = Trainer(split, parts, case.model(), sgd, "auto", cohort=count)
            choice = (
                trainer.device_choice or f"training is on the {trainer.device}: no driver of a GPU is here"
            )
            choices[f"{name} {count}"] = f"{choice}; {trainer.described}"
    tell(policy=choices)


def profile(device: str) -> None:
    """Print the three longest kernels of a training side by side; of a CPU, its operations."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    name = "femnist_cnn"
    trainer, clients = trainer_of(name, device, small=device == "cpu")
    users = range(min(trainer.chunk, clients))
    cohorts(trainer, users)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    with profiled(activities=activities) as record:
        start = time.perf_counter()
        cohorts(trainer, users)
        wall_ms = 1e3 * (time.perf_counter() - start)
    kind = DeviceType.CUDA if device == "cuda" else DeviceType.CPU
    events = [event for event in record.key_averages() if event.device_type == kind]
    times = {
        event.key: (event.self_device_time_total if device == "cuda" else event.self_cpu_time_total) / 1e3
        for event in events
    }
    total_ms = sum(times.values())
    longest = sorted(events, key=lambda event: -times[event.key])[:3]
    kernels = [
        {
            "name": event.key,
            "ms": times[event.key],
            "calls": event.count,
            "share": times[event.key] / total_ms,
        }
        for event in longest
    ]
    tell(profiled=f"{name}, {len(users)} clients, {trainer.way}", kernels=kernels, kernels_ms=total_ms,
         launches=sum(event.count for event in events), wall_ms=wall_ms)  # fmt: skip


LAUNCH_US = 5.0
"""Microseconds of a launch: 4 to 6 were measured by the author of pegainfer, on an RTX 5070 Ti."""
FLOPS = 66.9e12
"""Peak operations of an H100 in float32, without tensor cores."""


def launches(name: str) -> int:
    """Return the kernels of a step side by side, as torch's dispatcher counts operations on a CPU.

    Views and allocations are left out, and each other operation counts as one kernel. The number of clients
    does not matter.
    """
    # Samples are gathered in each step, as those of many clients are.
    closed_form._GATHERED = 1
    counted = []
    for epochs in (1, 2):
        trainer, clients = trainer_of(name, "cpu", small=True)
        trainer.sgd = replace(trainer.sgd, epochs=epochs)
        way = "closed_form" if CASES[name].model is MODELS["logistic"] else "vectorised"
        if way == "vectorised":
            trainer._learner._cohort = vectorised
        seen: list[Any] = []
        if trainer.way.name == "closed_form":
            trainer._learner = closed_form.ClosedForm(trainer.split, "meta", np.float32)
        with watching(lambda op, *_: seen.append(op)), suppress(NotImplementedError):  # noqa: B023
            cohorts(trainer, range(clients))
        counted.append(sum(_is_kernel(op) for op in seen))
    return counted[1] - counted[0]


def _is_kernel(op: Any) -> bool:
    schema = op._schema
    is_view = any(out.alias_info and not out.alias_info.is_write for out in schema.returns)
    return not is_view and not schema.name.partition("::")[2].startswith(("empty", "new_empty", "detach"))


def paper() -> None:
    """Print the table of docs/gpu.md: on paper, for a step of all clients that train together on an H100."""
    print("| case | clients together | kernels of a step | launches, ms | products, ms | in launches |")
    print("|---|---|---|---|---|---|")
    for name, case in CASES.items():
        count, macs = launches(name), trainer_of(name, "cpu", small=False)[0]
        for clients in (1, case.clients):
            launched = count * LAUNCH_US / 1e3
            products = 2e3 * 3 * macs._facts.macs * case.batch_size * clients / FLOPS
            share = launched / (launched + products)
            print(f"| `{name}` | {clients:,} | {count} | {launched:.2g} | {products:.2g} | {share:.0%} |")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("case", choices=("check", "policy", "profile", "paper", *CASES))
    asked = parser.parse_args()
    with one_thread():
        if asked.case == "check":
            check(asked.device)
        elif asked.case == "policy":
            policy()
        elif asked.case == "profile":
            profile(asked.device)
        elif asked.case == "paper":
            paper()
        else:
            measure(asked.case, asked.device)


if __name__ == "__main__":
    main()
