"""The server's least-squares attack on the sums of many rounds, and on the updates that a run recorded
(Multi-RoundSecAgg, appendix G.2, eqs. 33-35).

Once the global model has settled, a user's update is nearly the same in every round. The sums of a window of
rounds, sum_i w_i delta_i over the members, are then linear equations in the w_i delta_i of all users. Where a
user's weight changes, as over a buffer, its coefficient is the ratio to its largest (`weighted`). The users'
true updates are in the run's file, so the error of each estimate is known.

Where P has not full column rank, the least-squares solution of least norm takes the place of the inverse of
eq. 34. It gives users with identical columns, such as a batch, equal shares of their sum, as the paper does.
"""

from dataclasses import dataclass
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
"""The arrays of an `updates-NAME.npz`: numpy's kinds of their numbers, and their dimensions."""
Members = tuple[int, ...]
BINS = (0.0, 0.001, 0.01, 0.05, 0.1, 0.3, 0.5, 1.0, np.inf)
"""Of a histogram of errors."""


def isolated(P: NDArray[Any]) -> tuple[int, Members, tuple[Members, ...]]:
    """Return (rank, users, groups) of P, [t, N]: what the server can compute where updates are constant.

    rank: modulo a prime, so that it is certain not to be less. users: those whose own update it can single
    out (e_i is in the row space of P), ascending. groups: the classes of two or more users with identical
    columns whose sum it can, each ascending, by their first user.

    A class can be singled out exactly if a row of the reduced row echelon form has no other users. This is
    computed modulo a prime near 2^31, and wrong for a class with a chance of about one in 2^31.
    """
    spanned = span(P)
    supports = (np.flatnonzero(row) for row in spanned.space.rows)
    alone = sorted(tuple(s.tolist()) for s in supports if np.ptp(spanned.labels[s]) == 0)
    singles = tuple(group[0] for group in alone if len(group) == 1)
    return len(spanned.space.rows), singles, tuple(group for group in alone if len(group) > 1)


def reconstruct(P: NDArray[Any], totals: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the estimates of eq. 34, [N, d], in the type of `totals`; NaN for users that never took part.

    P: [r, N], ratios of weights (`weighted`). totals: [r, d], each round's sum of its users' (weighted)
    updates; ValueError for another r.
    """
    if totals.ndim != 2 or len(totals) != len(P):
        raise ValueError(f"totals must be [{len(P)} rounds, d], not of shape {totals.shape}")
    # P^+ is small and d may be millions: one product with it, not a factorisation with d right-hand sides.
    estimates: NDArray[np.floating] = np.linalg.pinv(P.astype(np.float64)).astype(totals.dtype) @ totals
    estimates[~P.any(axis=0)] = np.nan
    return estimates


def errors(truth: NDArray[np.floating], estimates: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return e_i = ||d_i - d^_i||^2 / ||d_i||^2 (eq. 35), [N], for truth and estimates of one shape, [N, d].

    NaN where the estimate is NaN. For a true update of zero: 0 if the estimate is zero too, else infinite.
    """
    if truth.shape != estimates.shape:
        raise ValueError(f"truth is {truth.shape} and the estimates are {estimates.shape}")
    e = np.empty(len(truth), np.float64)
    for i, (true, estimate) in enumerate(zip(truth, estimates, strict=True)):  # no copies of [N, d]
        norm = float(np.square(true, dtype=np.float64).sum())
        apart = float(np.square(true - estimate, dtype=np.float64).sum())
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


def attack_window(file: Path, first: int | None = None, last: int | None = None) -> WindowResult:
    """Attack rounds first .. last of an `updates-NAME.npz`; unless given, the last 2 N of them. A user's true
    update is its first in the window, delta_i^(t_0). BadInput if the window is empty or the file no run's."""
    recorded = read_updates(file)
    numbers, users = recorded["rounds"], int(recorded["users"])
    start = numbers[-2 * users :][0] if first is None else first
    window = (numbers >= start) & (numbers <= (numbers[-1] if last is None else last))
    if not window.any():
        known = f"rounds {numbers[0]} to {numbers[-1]}"
        raise BadInput(f"{file}: no aggregate in rounds {start} to {last}; there are {known}")
    in_window = window[recorded["which"]]
    row = (np.cumsum(window) - 1)[recorded["which"][in_window]]
    members, weights = recorded["members"][in_window], recorded["weights"][in_window]
    took_part, earliest = np.unique(members, return_index=True)
    P = np.zeros((int(window.sum()), users))
    P[row, members] = weights
    largest, P = P.max(axis=0), ratios(P)
    weight = np.bincount(row, weights, minlength=len(P))
    totals = recorded["means"][window].astype(np.float64) * weight[:, None]
    truth = np.zeros((users, totals.shape[1]))
    truth[took_part] = recorded["updates"][np.flatnonzero(in_window)[earliest]]
    truth[took_part] *= largest[took_part, None]
    e = errors(truth, reconstruct(P, totals))
    rank, alone, groups = isolated(P)
    T = span(P).strong, weak(P, RUN_BUDGET)
    bounds = int(numbers[window][0]), int(numbers[window][-1])
    return WindowResult(*bounds, len(P), rank, e, alone, groups, *T, file)


def read_updates(file: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an `updates-NAME.npz` by name; BadInput if it is none."""
    try:
        arrays, most = read_npz(checked(file), tuple(ARRAYS)), most_bytes()
    except UnpackingError as error:
        raise BadInput(f"{file}: {error}: not what a run with record_updates writes") from None
    for name, (kinds, dimensions) in ARRAYS.items():
        array = arrays[name]
        if array.dtype.kind not in kinds or array.ndim != dimensions:
            found = f"{array.dtype} of {array.ndim} dimensions"
            wanted = "floats" if "f" in kinds else "integers"
            raise BadInput(f"{file}: {name} is {found}, expected {wanted} of {dimensions}")
        if not np.isfinite(array).all():
            raise BadInput(f"{file}: {name} has values that are infinite or NaN")
    if not (arrays["weights"] > 0).all():
        raise BadInput(f"{file}: weights must be above 0")
    n, t, users = len(arrays["members"]), len(arrays["rounds"]), int(arrays["users"])
    d = arrays["updates"].shape[1]
    fit = n and t and d and arrays["means"].shape == (t, d)
    fit = fit and all(len(arrays[name]) == n for name in ("which", "weights", "updates"))
    indices = (("members", users), ("which", t))
    if not fit or any(arrays[name].min() < 0 or arrays[name].max() >= end for name, end in indices):
        raise BadInput(f"{file}: its arrays do not fit together")
    if users * (t + d) * 8 > most:
        size = f"{users} users, {t} rounds and {d} parameters"
        raise BadInput(f"{file}: {size} take more than {most / 1e9:g} GB")
    return arrays
