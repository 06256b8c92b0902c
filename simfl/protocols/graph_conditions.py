"""The evolution of an assignment graph in one round, and what it promises (CCESA, Choi 2020, section 4).

The law: the server gets the sum over V3 if and only if the round is `reliable` (Theorem 1), and the sum over
a part of V3 if and only if it is not `private` (Theorem 2). Nobody colludes with the server.

Why: it can only add uploads. The mask of an edge within V3 is never revealed, so it cancels only in sums
over whole components C_l of G3; the masks of C_l come off only if the secrets of all of C_l and of its
neighbours, who were lost or not, come back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from simfl.protocols.graphs import Graph


@dataclass(frozen=True)
class Evolution:
    """A graph over V0, its keys, and the users of it that came through each step.

    graph: symmetric; t: user -> t_i, how many shares give back its secrets; V1: who advertised keys;
    V2, part of V1: who shared its secrets; V3, part of V2: whose upload came; V4, part of V3: who answered
    for others' secrets. Users who share one tuple as neighbourhood are counted once: the complete graph
    costs O(n).

    >>> some, shares = frozenset({0, 1, 2}), dict.fromkeys(range(3), 2)
    >>> round_ = Evolution(dict.fromkeys(range(3), (0, 1, 2)), shares, some, some, some, frozenset({0, 1}))
    >>> round_.reliable, round_.private
    (True, True)
    """

    graph: Graph
    t: Mapping[int, int]
    V1: Set[int]
    V2: Set[int]
    V3: Set[int]
    V4: Set[int]

    def informative(self, i: int) -> bool:
        """Return True if the secrets of user i can be reconstructed: at least t_i of its closed neighbourhood
        are in V4 (Definition 3)."""
        return self._answers[i] >= self.t[i]

    @property
    def V3_plus(self) -> Set[int]:
        """V3 and its neighbours in V2: whose masks are in the sum of the uploads (Theorem 1)."""
        return self._plus(self.V3)

    @property
    def reliable(self) -> bool:
        """True if the server gets the sum over V3 (Theorem 1). False if V3 is empty."""
        return bool(self.V3) and all(map(self.informative, self.V3_plus))

    @property
    def private(self) -> bool:
        """True if the server gets no sum over a proper part of V3 (Theorem 2): G3 is connected, or of each
        component C_l some user of C_l^+ is not informative. True if V3 is empty: nothing was uploaded."""
        components = list(self._components())
        return len(components) < 2 or not any(all(map(self.informative, self._plus(C))) for C in components)

    @cached_property
    def _answers(self) -> dict[int, int]:
        """|closed neighbourhood & V4| of each user."""
        counted: dict[int, int] = {}
        for closed in self.graph.values():
            if id(closed) not in counted:
                counted[id(closed)] = len(self.V4 & set(closed))
        return {i: counted[id(closed)] for i, closed in self.graph.items()}

    def _plus(self, users: Set[int]) -> Set[int]:
        """The users, and their neighbours in V2."""
        distinct = {id(closed): closed for closed in map(self.graph.__getitem__, users)}
        return users | (self.V2 & set(chain.from_iterable(distinct.values())))

    def _components(self) -> Iterator[Set[int]]:
        """The components of G3, the graph that V3 induces."""
        left = set(self.V3)
        while left:
            frontier = [left.pop()]
            component = set(frontier)
            while frontier and left:
                found = left.intersection(self.graph[frontier.pop()])
                left -= found
                component |= found
                frontier.extend(found)
            yield component
