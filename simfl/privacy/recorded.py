"""The attack on a run that recorded its updates: what the server could have learnt from its aggregates.

Source: Multi-RoundSecAgg App. G.2. In round t the server sees sum_i w_i delta_i over the members; where
updates have settled these are linear equations in the w_i delta_i of all users (eq. 33), and least squares
(eq. 34) solves them. What each user really sent is known here, so the error is too (eq. 35).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.errors import BadInput
from simfl.privacy.attack import errors, isolated, rank, reconstruct
from simfl.unpacking import UnpackingError, most_bytes, read_npz

KINDS = {
    "users": ("iu", 0), "rounds": ("iu", 1), "means": ("f", 2), "which": ("iu", 1), "members": ("iu", 1),
    "weights": ("fiu", 1), "updates": ("f", 2),
}  # fmt: skip
"""The arrays of an `updates-NAME.npz`: numpy's kinds of their numbers, and their dimensions."""


@dataclass(frozen=True, slots=True)
class Attack:
    """What came of it.

    first, last: the rounds of the window. aggregates: how many there were in it. rank: of P over the window.
    errors: e_i of eq. 35, [users], NaN for users that took no part. alone: users whose update the server can
    isolate. groups: the users of each smallest group whose sum it can isolate.
    """

    first: int
    last: int
    aggregates: int
    rank: int
    errors: NDArray[np.float64]
    alone: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]


def attack(file: Path, first: int | None = None, last: int | None = None) -> Attack:
    """Attack rounds first .. last of an `updates-NAME.npz`; unless given, the last 2 N of them.

    A user's true update is its first in the window, delta_i^(t_0).

    Raises:
        BadInput: the file is not what a run writes, or the window is empty.
    """
    kept = _read(file)
    rounds, users = kept["rounds"], int(kept["users"])
    start = rounds[-2 * users :][0] if first is None else first
    window = (rounds >= start) & (rounds <= (rounds[-1] if last is None else last))
    if not window.any():
        there = f"rounds {rounds[0]} to {rounds[-1]}"
        raise BadInput(f"{file}: no aggregate in rounds {start} to {last}; there are {there}")
    place = np.cumsum(window) - 1
    P = np.zeros((int(window.sum()), users))
    totals = np.zeros((len(P), kept["means"].shape[1]))
    truth = np.zeros((users, totals.shape[1]))
    seen = np.zeros(users, bool)
    weight = np.zeros(len(P))
    for which, user, w, update in zip(
        kept["which"], kept["members"], kept["weights"], kept["updates"], strict=True
    ):
        if window[which]:
            P[place[which], user] = 1
            weight[place[which]] += w
            if not seen[user]:
                truth[user], seen[user] = w * update.astype(np.float64), True
    totals = kept["means"][window].astype(np.float64) * weight[:, None]
    e = errors(truth, reconstruct(P, totals))
    e[~seen] = np.nan
    alone, groups = isolated(P)
    return Attack(
        int(rounds[window][0]),
        int(rounds[window][-1]),
        len(P),
        rank(P),
        e,
        tuple(int(user) for user in alone),
        tuple(tuple(int(user) for user in group) for group in groups),
    )


def _read(file: Path) -> dict[str, NDArray[Any]]:
    try:
        kept, most = read_npz(file, tuple(KINDS)), most_bytes()
    except UnpackingError as error:
        raise BadInput(f"{file}: {error}: not what a run with record_updates writes") from None
    for name, (kinds, dimensions) in KINDS.items():
        array = kept[name]
        if array.dtype.kind not in kinds or array.ndim != dimensions:
            found = f"{array.dtype} of {array.ndim} dimensions"
            wanted = "floats" if "f" in kinds else "integers"
            raise BadInput(f"{file}: {name} is {found}, expected {wanted} of {dimensions}")
        if not np.isfinite(array).all():
            raise BadInput(f"{file}: {name} has values that are infinite or NaN")
    n, t, users = len(kept["members"]), len(kept["rounds"]), int(kept["users"])
    d = kept["updates"].shape[1]
    fits = (
        all(len(kept[name]) == n for name in ("which", "weights", "updates"))
        and n
        and t
        and d
        and kept["means"].shape == (t, d)
        and _inside(kept["members"], users)
        and _inside(kept["which"], t)
    )
    if not fits:
        raise BadInput(f"{file}: its arrays do not fit together")
    if users * (t + d) * 8 > most:
        raise BadInput(
            f"{file}: {users} users, {t} rounds and {d} parameters take more than {most / 1e9:g} GB"
        )
    return kept


def _inside(numbers: NDArray[Any], end: int) -> bool:
    return int(numbers.min()) >= 0 and int(numbers.max()) < end
