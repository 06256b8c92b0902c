"""Each user's exposure to each coalition: the fewest users over whom more than the sum is known of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from simfl.dataplane.terms import Coordinate
from simfl.privacy.leaks.elimination import Line, within
from simfl.privacy.leaks.laws import allowed_of
from simfl.privacy.leaks.views import Transcript

Circle = frozenset[int]


@dataclass(frozen=True)
class Exposed:
    """A coalition's knowledge of each honest user."""

    coalition: tuple[int, ...]
    circles: dict[int, Circle | None]
    """By honest user, the smallest set with it over whom more than the sum is known; None without one."""
    summed: frozenset[int]
    """Honest users of whom something is known."""


def exposure(seen: Transcript, coalitions: Sequence[tuple[int, ...]]) -> list[Exposed]:
    """Return a row for each coalition of a round of few users."""
    base, rows = seen.view(), []
    for coalition in coalitions:
        knowledge = seen.view(coalition, base)
        allowed, honest = allowed_of(seen, knowledge), [u for u in seen.users if u not in coalition]
        circles: dict[int, Circle | None] = dict.fromkeys(honest)
        for size in range(1, len(honest) + 1):
            for some in map(frozenset, combinations(honest, size)):
                if any(circles[user] is None for user in some):
                    known = knowledge.updates(lambda symbol, some=some: symbol.user in some)  # type: ignore[misc]
                    lines = (line for line in known.values() if not within(line, allowed, knowledge.q))
                    for user in _users(lines):
                        circles[user] = circles[user] or some
        rows.append(Exposed(coalition, circles, _users(knowledge.basis.values())))
    return rows


def _users(lines: Iterable[Line]) -> frozenset[int]:
    return frozenset(s.user for line in lines for s in line if isinstance(s, Coordinate))
