"""The attack of `simfl.privacy.least_squares` as a kind (Multi-RoundSecAgg, appendix G.2, Fig. 8)."""

from itertools import pairwise
from typing import Literal

import numpy as np

from simfl.config.blocks import Count
from simfl.privacy.attacks.attack import Attack, Bars, Finding, Knowledge, Outcome, Truth, View
from simfl.privacy.least_squares import BINS, errors, estimated, isolated
from simfl.privacy.weighted import ratios


def window(view: View, rounds: int | None) -> int:
    """Return the index of the first of the last `rounds` rounds, of 2 N unless given."""
    return max(0, len(view.rounds) - (rounds or 2 * view.users))


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
    """Number of rounds, the last ones, that are attacked; 2 N unless given."""

    def __call__(self, view: View, truth: Truth, rng: np.random.Generator) -> Outcome:
        first = window(view, self.rounds)
        weights = view.weights[first:]
        e = errors(truth.first(first), estimated(weights, view.totals[first:]))
        rank, alone, _ = isolated(ratios(weights))
        # Users that took no part in the window have no error.
        # An infinite error, of a true update of zero, is left out as well.
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
