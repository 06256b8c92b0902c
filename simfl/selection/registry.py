"""Who takes part in a round: each scheme is a pure function, named as in a scenario."""

from collections.abc import Callable, Sequence

import numpy as np

from simfl.selection.all_users import all_users
from simfl.selection.random_users import random_users

Select = Callable[
    [Sequence[int], Sequence[frozenset[int]], int | None, np.random.Generator], list[int] | None
]
"""select(available, history, k, rng): the users of this round, ascending, or None when they are too few
and the round is skipped. available: distinct users. history: the users of each earlier round. k: how many
take part, for schemes that are told. rng: the round's own stream."""

SCHEMES: dict[str, Select] = {
    "all": all_users,
    "random": random_users,
}
