"""Who takes part in a round: each scheme is a pure function, named as in a scenario."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from simfl.selection.all_users import all_users
from simfl.selection.bernoulli import bernoulli
from simfl.selection.history import Participation
from simfl.selection.multi_round import multi_round
from simfl.selection.partition import partition
from simfl.selection.random_users import random_users
from simfl.selection.weighted_random import weighted_random

Select = Callable[
    [Sequence[int] | NDArray[np.int64], Participation, int | None, np.random.Generator], list[int] | None
]
"""select(available, history, k, rng): the users of this round, ascending, or None when they are too few
and the round is skipped. available: distinct users of 0 .. N - 1, in any order. history: who took part in
each earlier round; it knows N. k: how many take part, for schemes that are told. rng: the round's own
stream."""

SCHEMES: dict[str, Callable[..., list[int] | None]] = {
    "all": all_users,
    "random": random_users,
    "weighted_random": weighted_random,
    "partition": partition,
    "bernoulli": bernoulli,
    "multi_round": multi_round,
}
"""`all`, `random`, `weighted_random` and `partition` are a `Select` as they are. What a scheme takes besides
is by keyword, and the caller binds it, once a run:

    select: Select = partial(SCHEMES["multi_round"], T=3, fair=True)
    select: Select = partial(SCHEMES["bernoulli"], probability=K / (N * (1 - p)))

A scenario that uses `multi_round` (or `partition`, with T = K) is checked by `multi_round.check_batches`."""
