"""Multi-RoundSecAgg App. H, Corollary 1: sums of a random number of random vectors stay below eqs. 52 and 53.

W vectors are added, w with probability C / w and else none. The mean square of the sum is estimated over
draws of the vectors and of W; where the corollary is an equality, it must be met, and elsewhere not exceeded.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from papers.entry import Cell, Entry, Evidence, Place
from simfl.random_streams import Streams

D, SIGMA2 = 10, 4.0
DRAWS = 100_000
BATCH = ((12, 11.83), (12, 8.42), (12, 1.57))
"""w and the mean of W: K, and the mean C of T = 4, 6 and 12 over lists of p_i (`multi_round_unequal`)."""
ERRORS = 4.0
"""Standard errors of the mean by which an equality may be missed."""

Array = NDArray[np.float64]


def sums(vectors: Array, mu: float, rng: np.random.Generator) -> tuple[float, float]:
    """Return the mean of ||sum of W vectors||^2 and its standard error. vectors: [DRAWS, w, D]."""
    here = rng.random(len(vectors)) < mu / vectors.shape[1]
    square = np.where(here, (vectors.sum(1) ** 2).sum(1), 0.0)
    return float(square.mean()), float(square.std() / sqrt(len(square)))


def noise(rng: np.random.Generator, *shape: int) -> Array:
    """Return vectors of mean square SIGMA2."""
    return rng.standard_normal((*shape, D)) * sqrt(SIGMA2 / D)


def cells_of(w: int, mu: float, rng: np.random.Generator) -> list[Cell]:
    """Eq. 52 with one error for all and with errors of their own, eq. 53 with means that follow the past."""
    zeta = np.arange(1.0, w + 1)[:, None] * np.ones(D) / w
    whole = float((zeta.sum(0) ** 2).sum())
    by_52 = mu / w * whole + w * mu * SIGMA2
    words = f"w = {w}, E[W] = {mu:g}"
    same, error = sums(zeta + noise(rng, DRAWS, 1), mu, rng)
    own, _ = sums(zeta + noise(rng, DRAWS, w), mu, rng)
    tight = Cell(
        f"eq. 52, {words}: one error in all vectors", by_52, same, "", bound=ERRORS * error / by_52,
        remark=f"an equality there; within {ERRORS:g} standard errors", basis="by construction",
    )  # fmt: skip
    cells = [tight, Cell(f"eq. 52, {words}: errors of their own", by_52, own, "", "at most")]
    errors = noise(rng, DRAWS, w)
    means = np.zeros_like(errors)
    for i in range(1, w):  # each mean draws on the errors before it, as a model does
        means[:, i] = 0.5 * (means[:, i - 1] + errors[:, i - 1])
    following, _ = sums(means + errors, mu, rng)
    of_means = float((means.sum(1) ** 2).sum(1).mean())
    by_53 = 2 * mu / w * of_means + 2 * mu * SIGMA2
    return [
        *cells,
        Cell(f"eq. 53, {words}: means that follow earlier errors", by_53, following, "", "at most"),
    ]


def run(place: Place) -> Evidence:
    """The three cases for each C."""
    rng = Streams(ENTRY.seed).rng("corollary")
    return Evidence(tuple(cell for w, mu in BATCH for cell in cells_of(w, mu, rng)))


ENTRY = Entry(
    name="multi_round_corollary1",
    paper="Multi-RoundSecAgg",
    where="App. H, Corollary 1",
    title="Mean squares of sums of a random number of random vectors",
    on="Gaussian vectors of ten dimensions, with W of 0 or K = 12 whose mean is C of T = 4, 6 and 12, for the"
    " p_i of section 6",
    how="Neither side may exceed its value in eqs. 52 and 53; where all vectors share one error, eq. 52 is an"
    " equality, and must be met within sampling error. In eq. 53 the means are random, and the mean of"
    " their square stands.",
    run=run,
)
