"""Batches of users that a sum holds whole or not at all (Multi-RoundSecAgg).

Users k T .. (k + 1) T - 1 are a batch, which everybody knows. A selection of whole batches keeps two users of
one from being told apart by any combination of the rounds' sums (Theorem 1). A user who is lost after the
selection undoes that: a sum over the rest of its batch sets it apart from them, for good.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from simfl.protocols.index_views import Users


@dataclass(frozen=True, slots=True)
class Batches:
    """The batches of T users, and what becomes of one that lost a member: with `keep` the rest is summed up,
    with `drop` the server leaves the rest out, and with `refuse` users help with no sum over a part of it."""

    T: int = 1
    broken: str = "keep"

    @property
    def drop(self) -> bool:
        return self.broken == "drop"

    @property
    def refuse(self) -> bool:
        return self.broken == "refuse"

    def split(self, users: Sequence[int]) -> frozenset[int]:
        """Return those of distinct users who lack one of their batch; nobody where batches may be split.

        >>> sorted(Batches(3, "drop").split([0, 1, 2, 4, 5]))
        [4, 5]
        """
        if self.broken == "keep":
            return frozenset()
        return (users if isinstance(users, Users) else Users(users)).split(self.T)


SINGLES = Batches()
"""Users who are selected one by one."""
