"""LightSecAgg F.5: staleness weights rounded with c_g = 2^6 do as well as real ones.

Buffered rounds as in F.5: K = 10 of N = 100 updates with staleness uniform on 0 .. 10, weights
s(tau) = 1 / (1 + tau), rounded by eq. 34 or not. Users, staleness and training are the same for every c_g.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import inf
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from papers.entry import Cell, Chart, Entry, Evidence, Line, Place
from simfl.crypto.quantize import round_weight
from simfl.learning.data.unpublished import Digits
from simfl.learning.models import MODELS
from simfl.learning.partition import Iid
from simfl.learning.server_opt import Averaging
from simfl.learning.sgd import LocalSgd
from simfl.learning.trainer import Trainer
from simfl.protocols.staleness import Polynomial
from simfl.random_streams import Streams
from simfl.runs.results.statistics import estimate

N, K, TAU_MAX, ROUNDS, STEP = 100, 10, 10, 40, 0.4
LEVELS = (1, 4, 16, 64, 1024)
SEEDS = tuple(range(1, 21))
STATED = 64
SAME = 0.005
"""Accuracies whose difference is surely no larger are the same."""
DRAWS = 2000


@cache
def trainer(seed: int) -> Trainer:
    """Digits, dealt to N users."""
    streams = Streams(seed)
    split = Digits().loaded(streams.rng("data"))
    parts = Iid().dealt(split, N, streams.rng("partition"))
    return Trainer(split, parts, MODELS["logistic"](), LocalSgd(10, 10, 1.0), "cpu", "closed_form")


def weights(taus: list[int], c_g: int | None, streams: Streams, t: int) -> list[float]:
    """s(tau), rounded to multiples of 1 / c_g by eq. 34 if there is one."""
    s = [Polynomial(alpha=1.0)(tau) for tau in taus]
    if c_g is None:
        return s
    return [round_weight(x, c_g, _seed(streams, t, k)) / c_g for k, x in enumerate(s)]


def _seed(streams: Streams, *name: int) -> NDArray[np.uint8]:
    return np.frombuffer(streams.bytes("weight", *name), np.uint8)[None]


def accuracies(c_g: int | None, seed: int) -> list[float]:
    """The accuracy after every tenth round; a round whose weights are all 0 changes nothing."""
    streams, made = Streams(seed), trainer(seed)
    draws, models, out = streams.rng("arrivals"), [made.initial(streams.bytes("initial"))], []
    for t in range(ROUNDS):
        users = draws.choice(N, K, replace=False).tolist()
        taus = np.minimum(draws.integers(0, TAU_MAX + 1, K), t).tolist()
        s = weights(taus, c_g, streams, t)
        seeds = [streams.bytes("train", user, t) for user in users]
        deltas = made.train([models[t - tau] for tau in taus], users, seeds, [t] * K)
        if any(s):
            g = np.average(deltas.astype(np.float64), axis=0, weights=s)[None]
            models.append(Averaging().apply(models[-1], g, STEP))
        else:
            models.append(models[-1])
        if t % 10 == 9:
            out.append(float(made.evaluate(models[-1])[0, 0]))
    return out


def deviation(c_g: int) -> float:
    """Half the l1 distance of a buffer's normalised weights from those of real numbers, its mean."""
    streams, total = Streams(SEEDS[0]), 0.0
    draws = streams.rng("deviation")
    for t in range(DRAWS):
        taus = draws.integers(0, TAU_MAX + 1, K).tolist()
        real, rounded = (_normal(weights(taus, c, streams, t)) for c in (None, c_g))
        total += float(np.abs(real - rounded).sum()) / 2
    return total / DRAWS


def _normal(s: list[float]) -> NDArray[np.float64]:
    return np.array(s) / (sum(s) or 1)


def run(place: Place) -> Evidence:
    """Accuracy against c_g, beside real weights."""
    runs = {c: np.array([accuracies(c, seed) for seed in SEEDS]) for c in (None, *LEVELS)}
    curves = {c: found.mean(axis=0) for c, found in runs.items()}
    finals: dict[int | None, list[float]] = {c: found[:, -1].tolist() for c, found in runs.items()}
    mean = fmean(finals[None])
    cells = [Cell("real weights", None, mean, "accuracy", "none", remark=f"mean of {len(SEEDS)} seeds")]
    cells += [cell(c, finals[c], finals[None], deviation(c)) for c in LEVELS]
    x = tuple(float(t) for t in range(10, ROUNDS + 1, 10))
    lines = [Line("real" if c is None else f"c_g = {c}", x, tuple(y.tolist())) for c, y in curves.items()]
    chart = Chart("Bundled digits, weights s(tau) = 1 / (1 + tau)", "round", "test accuracy", tuple(lines))
    return Evidence(tuple(cells), (chart,))


def cell(c_g: int, rounded: Sequence[float], real: Sequence[float], away: float) -> Cell:
    """Accuracies with rounded and with real weights, seed by seed; the paper speaks of c_g = 2^6 only."""
    by = estimate([a - b for a, b in zip(rounded, real, strict=True)])
    half = inf if by.half is None else by.half
    statement = "the same as real weights"
    word = statement if abs(by.mean) + half <= SAME else "undecided" if abs(by.mean) <= half else "another"
    remark = f"{by.mean:+.4f} ± {half:.4f}; {100 * away:.2g} % of a buffer's weight misplaced"
    if c_g != STATED:
        words = f"{word}: {remark}"
        return Cell(f"c_g = {c_g}", None, fmean(rounded), "accuracy", "none", remark=words)
    return Cell(f"c_g = {c_g}", statement, word, compare="order", remark=remark)


ENTRY = Entry(
    name="lightsecagg_cg",
    paper="LightSecAgg",
    where="App. F.5 (c_g)",
    title="Accuracy with rounded staleness weights",
    on="the bundled digits, logistic regression, 40 aggregations of K = 10 of N = 100 updates, staleness"
    " uniform on 0 .. 10; the paper: LeNet on MNIST and a CNN on CIFAR-10",
    how="The text states that c_g = 2^6 has the same performance as real weights: the 95 % interval of the"
    " difference, seed by seed, lies within 0.005 of zero. The same is shown for other c_g, with the share of"
    " a buffer's normalised weight that rounding moves elsewhere.",
    run=run,
)
