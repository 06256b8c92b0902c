"""LightSecAgg Lemma 2: stochastic rounding is unbiased, with a variance of at most 1 / (4 c^2) a coordinate.

Given the fraction f of c x, the variance is f (1 - f) / c^2: at its most where f = 1/2, and 1 / (6 c^2) on
average over f. The lemma is proven and the quantiser is eq. 29, so that what fails here is the code.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from papers.entry import Cell, Entry, Evidence, Place
from simfl.crypto.quantize import signed_levels
from simfl.random_streams import Streams

LEVELS = (2**4, 2**10, 2**16)
D, REPEATS = 100_000, 20
SIGMA = 1e-3
"""Of the noise of a gradient's coordinate."""
ERRORS = 3.3
BOUND = 0.01

Row = NDArray[np.float64]


def error(x: Row, c: int, noise: float = 0.0) -> tuple[float, float]:
    """Return the means of Q_c(g) - x over coordinates and repeats, and of ||Q_c(g) - x||^2, where g is x with
    normal noise."""
    bias, square = [], []
    for repeat in range(REPEATS):
        streams = Streams(ENTRY.seed)
        row = x + noise * streams.rng("noise", c, repeat).standard_normal(D)
        rounded = signed_levels(row[None], 4.0, c, _seed(streams, "rounding", c, repeat))[0] / c
        bias.append(float((rounded - x).mean()))
        square.append(float(((rounded - x) ** 2).sum()))
    return float(np.mean(bias)), float(np.mean(square))


def _seed(streams: Streams, *name: str | int) -> NDArray[np.uint8]:
    return np.frombuffer(streams.bytes(*name), np.uint8)[None]


def run(place: Place) -> Evidence:
    """Bias and variance for three kinds of coordinates and three c."""
    cells = []
    for c in LEVELS:
        limit = D / (4 * c**2)
        anywhere = Streams(ENTRY.seed).rng("x").uniform(-1, 1, D)
        halfway = (np.floor(anywhere * c) + 0.5) / c

        bias, square = error(anywhere, c)
        words = f"c = 2^{c.bit_length() - 1}"
        cells += [
            Cell(f"E ||Q(x) - x||^2, {words}", limit, square, "", "at most"),
            Cell(
                f"the same times 6 c^2 / d, 1 by hand, {words}", None, square * 6 * c**2 / D, compare="none"
            ),
            unbiased(c, bias),
        ]
        _, square = error(halfway, c)
        remark = "every coordinate half-way between two levels: the worst case"
        cells.append(Cell(f"worst case, {words}", limit, square, bound=BOUND, remark=remark))
        _, square = error(anywhere, c, SIGMA)
        with_noise = limit + D * SIGMA**2
        slack = ERRORS * D * SIGMA**2 * sqrt(2 / (D * REPEATS))
        remark = f"a gradient with sigma_l^2 = d {SIGMA**2:g}; eq. 41"
        label = f"E ||Q(g) - grad F||^2, {words}"
        cells.append(Cell(label, with_noise, square, "", "at most", slack, remark))
    return Evidence(tuple(replace(cell, basis="by construction") for cell in cells))


def unbiased(c: int, bias: float) -> Cell:
    """Eq. 40: the mean error is 0 within its standard error."""
    most = ERRORS / (c * sqrt(6 * D * REPEATS))
    statement = "unbiased"
    words = f"mean error {bias * c:.1e} / c, {ERRORS} standard errors are {most * c:.1e} / c"
    ours = statement if abs(bias) <= most else "biased"
    return Cell(f"eq. 40, c = 2^{c.bit_length() - 1}", statement, ours, compare="order", remark=words)


ENTRY = Entry(
    name="lightsecagg_lemma2",
    paper="LightSecAgg",
    where="Lemma 2",
    title="Bias and variance of stochastic rounding",
    on="the quantiser that runs use, 100,000 coordinates, 20 roundings",
    how="Eq. 41's d / (4 c^2) + sigma_l^2 is an upper limit; with a gradient's noise, 3.3 standard errors"
    " more are allowed. Coordinates anywhere have d / (6 c^2) by hand, which the paper leaves out; those"
    " half-way between two levels must reach the limit, within 1 %. The lemma is proven, so all of it"
    " holds by construction if the quantiser is eq. 29.",
    run=run,
)
