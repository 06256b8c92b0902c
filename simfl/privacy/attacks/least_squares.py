"""Least squares on the sums of many rounds (Multi-RoundSecAgg, appendix G.2, eqs. 33-35, Fig. 8)."""

from itertools import pairwise
from typing import Literal

import numpy as np

from simfl.config.blocks import Count
from simfl.privacy.attacks.attack import F64, Attack, Bars, Finding, Knowledge, Outcome, Truth, View
from simfl.privacy.least_squares import BINS, errors, isolated, reconstruct
from simfl.privacy.weighted import ratios


def window(view: View, rounds: int | None) -> int:
    """Return the place of the first of the last so many rounds, of 2 N unless given."""
    return max(0, len(view.rounds) - (rounds or 2 * view.users))


def estimated(view: View, first: int) -> F64:
    """Return the estimates of w_i delta_i [users, d] from the sums of the rounds from a place on, w_i being
    the weight of the first that a user is in."""
    P = ratios(view.weights[first:])
    begin = P[(P != 0).argmax(axis=0), np.arange(view.users)]
    return np.asarray(reconstruct(P, view.totals[first:]) * begin[:, None], np.float64)


class LeastSquares(Attack):
    """Users' updates from the sums of many rounds, by least squares (Multi-RoundSecAgg App. G.2).

    Once the global model has settled, a user's update is nearly the same in every round, so sums are linear
    equations in the users' updates.
    """

    kind: Literal["least_squares"] = "least_squares"
    knowledge = Knowledge(
        "updates that hardly change over the rounds of the window",
        "mean, median: error ||d - d^||^2 / ||d||^2 of eq. 35 over users; rank of P; alone: users whom their "
        "participation alone gives away",
    )
    rounds: Count | None = None
    """The last so many rounds are attacked; 2 N unless given."""

    def __call__(self, view: View, truth: Truth, rng: np.random.Generator) -> Outcome:
        first = window(view, self.rounds)
        e = errors(truth.first(first), estimated(view, first))
        rank, alone, _ = isolated(ratios(view.weights[first:]))
        e = e[np.isfinite(e)]
        numbers = {
            "rounds": len(view.rounds) - first,
            "users": len(e),
            "rank": rank,
            "alone": len(alone),
            "mean": e.mean(),
            "median": np.median(e),
        }
        counts, _ = np.histogram(e, BINS)
        labels = tuple(f"{low:g} to {high:g}" for low, high in pairwise(BINS))
        title = f"{view.entry}: users by error e, mean {e.mean():.4g}"
        finding = Finding(view.entry, "sums", {name: float(x) for name, x in numbers.items()})
        return Outcome((finding,), bars=(Bars(title, labels, {"users": tuple(counts.tolist())}),))
