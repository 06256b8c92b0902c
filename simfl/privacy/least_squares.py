"""The least-squares attack on the sums of many rounds (Multi-RoundSecAgg, appendix G.2, eqs. 33-35).

Once the global model has settled, a user's update is nearly the same in every round. The sums of a window of
rounds, sum_i w_i delta_i over the members, are then linear equations in the w_i delta_i of all users. Where a
user's weight changes, as over a buffer, its coefficient is the ratio to its largest weight (`weighted`). The
users' true updates are in the run's file, so the error of each estimate is known.

Where P has not full column rank, the minimum-norm least-squares solution replaces the inverse of eq. 34. It
gives users with identical columns, such as a batch, equal shares of their sum, as the paper does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.config.digests import checked
from simfl.config.unpacking import UnpackingError, most_bytes, read_npz
from simfl.errors import BadInput
from simfl.privacy.weighted import ratios, span, weak
from simfl.runs.multi_round_privacy.weak import RUN_BUDGET, Interval

ARRAYS = {
    "users": ("iu", 0), "rounds": ("iu", 1), "means": ("f", 2), "which": ("iu", 1), "members": ("iu", 1),
    "weights": ("fiu", 1), "updates": ("f", 2),
}  # fmt: skip
"""Arrays of an `updates-NAME.npz`: numpy's kinds of their numbers, and their dimensions."""
Members = tuple[int, ...]
BINS = (0.0, 0.001, 0.01, 0.05, 0.1, 0.3, 0.5, 1.0, np.inf)
"""Bins of a histogram of errors."""


def isolated(P: NDArray[Any]) -> tuple[int, Members, tuple[Members, ...]]:
    """Return the users and groups of users that the server can isolate if updates are constant.

    A class of users with identical columns can be isolated exactly if a row of the reduced row echelon form
    has no other users. This is computed modulo a prime near 2^31, and is wrong for a class with a probability
    of about 2^-31.

    Args:
        P: Ratios of weights, [t, N].

    Returns:
        The rank modulo the prime, which P's rank is not below; the users whose own update can be isolated,
        ascending; and the classes of two or more users whose sum can be, each ascending, by their first user.
    """
    spanned = span(P)
    supports = (np.flatnonzero(row) for row in spanned.space.rows)
    # All users of the support are of one class: the row is a multiple of their sum.
    alone = sorted(tuple(s.tolist()) for s in supports if np.ptp(spanned.labels[s]) == 0)
    singles = tuple(group[0] for group in alone if len(group) == 1)
    return len(spanned.space.rows), singles, tuple(group for group in alone if len(group) > 1)


def reconstruct(P: NDArray[Any], totals: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the estimates of eq. 34, [N, d], in the type of `totals`; NaN for users that never took part.

    Args:
        P: Ratios of weights, [r, N].
        totals: Sums of weighted updates, [r, d].

    Raises:
        ValueError: `totals` has another r.
    """
    if totals.ndim != 2 or len(totals) != len(P):
        raise ValueError(f"totals must be [{len(P)} rounds, d], not of shape {totals.shape}")
    # P^+ is small and d may be millions: a product with it is cheaper than a factorisation with d right-hand
    # sides.
    estimates: NDArray[np.floating] = np.linalg.pinv(P.astype(np.float64)).astype(totals.dtype) @ totals
    # The minimum-norm solution gives them 0, which would look like an estimate.
    estimates[~P.any(axis=0)] = np.nan
    return estimates


def estimated(weights: NDArray[np.float64], totals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the estimates of w_i delta_i, [N, d], w_i being the weight in the first sum that has user i.

    Args:
        weights: Weights in each sum, [r, N]; 0 for users that are not in it.
        totals: Sums of weighted updates, [r, d].
    """
    P = ratios(weights)
    # The unknowns are scaled to a user's largest weight, and its true update to the first: this converts
    # them.
    first_ratio = P[(P != 0).argmax(axis=0), np.arange(P.shape[1])]
    return np.asarray(reconstruct(P, totals) * first_ratio[:, None], np.float64)


def errors(truth: NDArray[np.floating], estimates: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return e_i = ||d_i - d^_i||^2 / ||d_i||^2 (eq. 35), [N], of truth and estimates, [N, d].

    NaN where the estimate is NaN. For a true update of zero: 0 if the estimate is zero too, else infinite.

    Raises:
        ValueError: The shapes differ.
    """
    if truth.shape != estimates.shape:
        raise ValueError(f"truth is {truth.shape} and the estimates are {estimates.shape}")
    e = np.empty(len(truth), np.float64)
    # User by user: whole arrays would need temporary copies of [N, d].
    for i, (true, estimate) in enumerate(zip(truth, estimates, strict=True)):
        norm = float(np.square(true, dtype=np.float64).sum())
        apart = float(np.square(true - estimate, dtype=np.float64).sum())
        # 0 times infinity would be NaN, hence the two cases.
        e[i] = apart / norm if norm else (0.0 if apart == 0 else apart * np.inf)
    return e


@dataclass(frozen=True, slots=True)
class WindowResult:
    """The outcome of an attack on a window of rounds.

    Attributes:
        first: First round with an aggregate.
        last: Last round with an aggregate.
        aggregates: Number of aggregates in the window.
        rank: Rank of P over the window.
        errors: e_i of eq. 35, [users]; NaN for users that took no part.
        alone: Users whose own update the server can single out.
        groups: Classes of users with identical columns whose sum it can single out.
        strong: The strong T of P.
        weak: Bounds of the weak T of P.
        file: Recorded updates that were attacked.
    """

    first: int
    last: int
    aggregates: int
    rank: int
    errors: NDArray[np.float64]
    alone: Members
    groups: tuple[Members, ...]
    strong: int | None = None
    weak: Interval | None = None
    file: Path = Path()


@dataclass(frozen=True, eq=False)
class RecordedSums:
    """The sums of a recorded run, and the updates behind them."""

    arrays: Mapping[str, NDArray[Any]]
    """Arrays of an `updates-NAME.npz`."""

    @property
    def users(self) -> int:
        """N, the number of users."""
        return int(self.arrays["users"])

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """Weights in each sum, [t, N]; 0 for users that are not in it."""
        weights = np.zeros((len(self.arrays["rounds"]), self.users))
        # A user has one update in a sum, so no entry is written twice.
        weights[self.arrays["which"], self.arrays["members"]] = self.arrays["weights"]
        return weights

    @cached_property
    def totals(self) -> NDArray[np.float64]:
        """Sums of weighted updates, [t, d]."""
        totals: NDArray[np.float64] = self.arrays["means"].astype(np.float64)
        # The file has means. In place, so that there is no second array of [t, d].
        totals *= self.weights.sum(axis=1)[:, None]
        return totals

    def first_updates(self, begin: int, end: int | None = None) -> NDArray[np.float64]:
        """Return w_i delta_i of each user's first update in a window, [N, d]; NaN for users without one.

        Args:
            begin: Index of the window's first round.
            end: Index after its last round; the run's end unless given.
        """
        end = len(self.arrays["rounds"]) if end is None else end
        inside = np.flatnonzero((self.arrays["which"] >= begin) & (self.arrays["which"] < end))
        # Updates are stored in the order of rounds, and `return_index` gives each user's first.
        users, earliest = np.unique(self.arrays["members"][inside], return_index=True)
        rows = inside[earliest]
        weighted = np.full((self.users, self.arrays["updates"].shape[1]), np.nan)
        weights = self.arrays["weights"][rows, None].astype(np.float64)
        weighted[users] = self.arrays["updates"][rows] * weights
        return weighted


def attack_window(file: Path, first: int | None = None, last: int | None = None) -> WindowResult:
    """Attack the sums of a window of rounds. A user's true update is its first in the window, delta_i^(t_0).

    Args:
        file: An `updates-NAME.npz`.
        first: First round of the window; unless given, it has the last 2 N rounds.
        last: Last round of the window; the run's last unless given.

    Raises:
        BadInput: The window has no aggregate, or the file is not a run's.
    """
    sums = RecordedSums(read_updates(file))
    numbers = sums.arrays["rounds"]
    # Under random selection T falls to 1 within N to 2 N rounds
    # (`test_random_selection_falls_to_one_within_n_to_2_n_rounds`).
    start = numbers[-2 * sums.users :][0] if first is None else first
    stop = numbers[-1] if last is None else last
    window = np.flatnonzero((numbers >= start) & (numbers <= stop))
    if not window.size:
        rounds = f"choose from {numbers[0]} to {numbers[-1]}"
        raise BadInput(f"{file}: no aggregate in rounds {start} to {stop}: {rounds}")
    begin, end = int(window[0]), int(window[-1]) + 1  # numbers of rounds ascend
    weights = sums.weights[begin:end]
    P = ratios(weights)
    # The truth is the first update of the window, of which the later ones differ slightly.
    e = errors(sums.first_updates(begin, end), estimated(weights, sums.totals[begin:end]))
    rank, alone, groups = isolated(P)
    T = span(P).strong, weak(P, RUN_BUDGET)
    bounds = int(numbers[begin]), int(numbers[end - 1])
    return WindowResult(*bounds, len(P), rank, e, alone, groups, *T, file)


def read_updates(file: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an `updates-NAME.npz` by name.

    Raises:
        BadInput: It is not such a file, its arrays do not fit together, or it needs more memory than a file
            may.
    """
    try:
        arrays, max_bytes = read_npz(checked(file), tuple(ARRAYS)), most_bytes()
    except UnpackingError as error:
        raise BadInput(f"{file}: {error}: not what a run with record_updates writes") from None
    for name, (kinds, dimensions) in ARRAYS.items():
        array = arrays[name]
        if array.dtype.kind not in kinds or array.ndim != dimensions:
            numbers = "floats" if "f" in kinds else "integers"
            found = f"{array.dtype} of {array.ndim} dimensions"
            raise BadInput(f"{file}: {name} must be {numbers} of {dimensions} dimensions, not {found}")
        if not np.isfinite(array).all():
            raise BadInput(f"{file}: {name} has values that are infinite or NaN")
    # A weight of zero would make a member look like a user that was not in the sum.
    if not (arrays["weights"] > 0).all():
        raise BadInput(f"{file}: weights must be above 0")
    n, t, users = len(arrays["members"]), len(arrays["rounds"]), int(arrays["users"])
    d = arrays["updates"].shape[1]
    # Before any array is used as an index into another: the file may come from elsewhere.
    fit = n and t and d and arrays["means"].shape == (t, d)
    fit = fit and all(len(arrays[name]) == n for name in ("which", "weights", "updates"))
    indices = (("members", users), ("which", t))
    if not fit or any(arrays[name].min() < 0 or arrays[name].max() >= end for name, end in indices):
        raise BadInput(f"{file}: its arrays do not fit together: run its scenario again")
    # `users` is a number in the file: the arrays of this size are made here, and not read from it.
    if users * (t + d) * 8 > max_bytes:
        size = f"{users} users, {t} rounds and {d} parameters"
        raise BadInput(f"{file}: {size} take more than {max_bytes / 1e9:g} GB")
    return arrays
