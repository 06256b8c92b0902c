"""Measure the seconds of each kind of work on this machine and print a device profile.

    python benchmarks/reference_profile.py > my_profile.yaml

Each figure is the median CPU time of several calls of the kernel that simfl itself runs, on one thread, at
a size where the work and not the call dominates; where a kernel has a cost per item and one per byte (or
per step and per multiply-add), both come from a least-squares fit over two sizes. Laws of training are
fitted by `simfl.learning.law`. The shipped `simfl/profiles/reference.yaml` was made by this command.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import yaml
from threadpoolctl import threadpool_limits

from simfl.crypto import audit, field, keys, mds, prg, quantize, shamir
from simfl.learning import data, partition, server_opt
from simfl.learning.law import calibrate
from simfl.learning.models import MODELS
from simfl.learning.sgd import LocalSgd
from simfl.learning.trainer import Trainer
from simfl.profiles import LAW
from simfl.protocols.ops import WORK
from simfl.streams import Streams

Q = field.Q
D = 1_000_000
STREAMS = Streams(1)
LAWS = (
    ("logistic", (1, 28, 28), 10, 10),
    ("mcmahan_cnn", (1, 28, 28), 10, 10),
    ("femnist_cnn", (1, 28, 28), 62, 10),
    ("lenet5", (3, 32, 32), 10, 10),
    ("lenet5", (3, 32, 32), 10, 50),
)
"""(model, shape of a sample, classes, batch size): of the papers. The models on 8 x 8 digits have no law:
what a minibatch costs outweighs its samples there, so minibatches and multiply-adds are charged."""


def seconds(call: Callable[[], object], repeats: int = 9) -> float:
    """Median CPU seconds of a call, after one to warm up."""
    call()
    times = []
    for _ in range(repeats):
        start = time.thread_time()
        call()
        times.append(time.thread_time() - start)
    return statistics.median(times)


def seed(*names: str | int) -> np.ndarray:
    """A 32-byte seed."""
    return np.frombuffer(STREAMS.bytes(*names), np.uint8).reshape(1, 32)


def fit(rows: list[tuple[float, float, float]]) -> tuple[float, float]:
    """(a, b) of T = a x + b y over rows (x, y, T), in relative least squares."""
    table = np.array(rows)
    solution = np.linalg.lstsq(table[:, :2] / table[:, 2:], np.ones(len(table)), rcond=None)[0]
    return float(max(solution[0], 1e-12)), float(max(solution[1], 1e-15))


def measure_keys() -> dict[str, float]:
    secret, n = seed("secret"), 50
    publics = np.concatenate([keys.public(seed("peer", i)) for i in range(n)])
    agreed = keys.agree(secret, publics, b"x")
    rows = []
    for length in (100, 120_000):
        items = np.zeros((n, length), np.uint8)
        nonces, aads = [keys.nonce(1, 0)] * n, [b"12345678"] * n
        taken = seconds(lambda i=items, a=nonces, b=aads: keys.seal(agreed, i, a, b))
        rows.append((n, n * length, taken))
    item, byte = fit(rows)
    return {
        "x25519": seconds(lambda: keys.public(secret), 51),
        "agree": seconds(lambda: keys.agree(secret, publics, b"x")) / n,
        "aead_item": item,
        "aead_byte": byte,
    }


def measure_field() -> dict[str, float]:
    a, b = prg.expand(seed("a"), D, Q), prg.expand(seed("b"), D, Q)
    rows, weights = [a, b] * 5, [64, 32] * 5
    delta = (prg.expand(seed("c"), D, Q) / Q - 0.5).astype(np.float32)
    quantised = quantize.quantise(delta, 3, 1.0, 2**16, seed("q"), Q, False)
    there = seconds(lambda: quantize.quantise(delta, 3, 1.0, 2**16, seed("q"), Q, False))
    back = seconds(lambda: quantize.dequantise(quantised, 2**16, 3, Q))
    g = delta.astype(np.float64)
    return {
        "prg_element": seconds(lambda: prg.expand(seed("a"), D, Q)) / D,
        "field_add": seconds(lambda: field.add(a, b, Q)) / D,
        "field_mac": seconds(lambda: field.weighted_sum(rows, weights, Q)) / (len(rows) * D),
        "quantise_element": (there + back) / (2 * D),
        "real_mac": seconds(lambda: audit.real_sum([delta] * 5, [1.0] * 5)) / (5 * D),
        "apply_element": seconds(lambda: server_opt.apply(delta, g, 1.0)) / D,
    }


def measure_codes() -> dict[str, float]:
    points, U, T = list(range(1, 101)), 70, 50
    z = prg.expand(seed("z"), 200_000, Q)
    m = mds.share_length(z.shape[1], U, T)
    noise = seconds(lambda: prg.expand(seed("n"), T * m, Q))
    encode = seconds(lambda: mds.encode(z, seed("n"), points, U, T, Q)) - noise
    tiny = np.ones((U, 1), np.uint32)
    t, secrets = 51, np.concatenate([seed("s"), seed("b")])
    share = seconds(lambda: shamir.share(secrets, seed("c"), points, t))
    shares = shamir.share(secrets[:1], seed("c"), points, t)
    windows = iter(range(49))  # a survivor set not met before each time: its Lagrange weights are cached

    def reconstruct() -> object:
        start = next(windows)
        return shamir.reconstruct(shares[start : start + t], points[start : start + t])

    return {
        "mds_mac": encode / (len(points) * U * m),
        "mds_inverse": seconds(lambda: mds.decode(tiny, points[:U], U, T, U - T, Q)) / U**2,
        "shamir_mac": share / (9 * len(secrets) * len(points) * t),
        "lagrange_pair": seconds(reconstruct) / t**2,
    }


def measure_training() -> dict[str, float]:
    split = data.digits(STREAMS.rng("data"))
    rows = []
    for model in ("logistic", "cnn"):
        for users in (100, 20):
            parts = partition.iid(split.y_train, users, STREAMS.rng("partition"))
            trainer = Trainer(split, parts, MODELS[model], LocalSgd(5, 10, 0.1), "cpu", "loop")
            weights = trainer.initial(seed("w"))
            taken = seconds(lambda t=trainer, w=weights: t.training(w, 0, seed("m"), 0))
            work = trainer.work(0)
            rows.append((work["train_step"], work["train_mac"], taken))
    step, mac = fit(rows)
    return {"train_step": step, "train_mac": mac}


def measure_laws() -> list[dict[str, object]]:
    """T = start + sample E n of the papers' models."""
    laws = []
    for model, shape, classes, batch_size in LAWS:
        rng = np.random.default_rng(0)
        x = rng.random((16 * batch_size, *shape), np.float32)
        y = rng.integers(0, classes, len(x))
        split = data.Split(x, y, x[:1], y[:1], classes)
        law = calibrate(split, MODELS[model], LocalSgd(1, batch_size, 0.1))
        start, sample = (max(float(f"{value:.3g}"), 1e-9) for value in (law.start, law.sample))
        what = {"model": model, "shape": list(shape), "batch_size": batch_size}
        laws.append({**what, "start": start, "sample": sample})
    return laws


def processor() -> str:
    """The processor's name, where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main() -> None:
    torch.set_num_threads(1)
    with threadpool_limits(1):
        laws = measure_laws()
        measured = measure_keys() | measure_field() | measure_codes() | measure_training()
    profile = {
        "description": f"one core of {processor()}, Python {platform.python_version()}, "
        f"numpy {np.__version__}, torch {torch.__version__.split('+')[0]}",
        "seconds": {kind: float(f"{measured[kind]:.3g}") for kind in WORK if kind not in LAW},
        "training": laws,
    }
    print(yaml.safe_dump(profile, sort_keys=False, width=100, default_flow_style=None), end="")


if __name__ == "__main__":
    main()
