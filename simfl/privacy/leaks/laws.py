"""The laws of what an adversary may learn: the sum, and nothing beyond it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import combinations

from simfl.dataplane.terms import Coordinate
from simfl.privacy.leaks.coalitions import spread
from simfl.privacy.leaks.elimination import Basis, Line, reduced, within
from simfl.privacy.leaks.knowledge import Knowledge, in_words
from simfl.privacy.leaks.views import Transcript

TRIED_COALITIONS = 12
SEARCHED_USERS = 2  # beyond so many, a smallest leak is not searched for: the basis shows one


@dataclass(frozen=True)
class Leak:
    """A combination of updates that an adversary knows and should not, and how it comes about."""

    users: tuple[int, ...]
    combination: str
    proof: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.combination} is known, from\n" + "\n".join(f"  {line}" for line in self.proof)


def beyond(seen: Transcript, knowledge: Knowledge) -> Leak | None:
    """Return a leak over the fewest users, None if nothing beyond the sums is known."""
    q, known = knowledge.q, knowledge.basis
    allowed = allowed_of(seen, knowledge)
    if all(within(line, allowed, q) for line in known.values()):
        return None
    honest = sorted({s.user for line in known.values() for s in line if isinstance(s, Coordinate)})
    sizes = range(1, min(SEARCHED_USERS, len(honest)) + 1)
    for users in (some for size in sizes for some in combinations(honest, size)):
        leak = _over(knowledge, users, allowed)
        if leak is not None:
            return leak
    leak = _over(knowledge, tuple(honest), allowed)
    assert leak is not None
    return leak


def _over(knowledge: Knowledge, users: Collection[int], allowed: Basis) -> Leak | None:
    q = knowledge.q
    lines = knowledge.updates(lambda symbol: symbol.user in users, traced=True).values()
    leaks = [line for line in lines if not within(line, allowed, q)]
    if not leaks:
        return None
    line = min(leaks, key=len)
    who = sorted({symbol.user for symbol in line if isinstance(symbol, Coordinate)})
    return Leak(tuple(who), in_words(line, q), tuple(knowledge.proof(line)))


def allowed_of(seen: Transcript, knowledge: Knowledge) -> Basis:
    """Return the sums that may be known, without the adversary's own updates."""
    q, own, known = knowledge.q, knowledge.own, knowledge.basis
    honest = [_honest(line, own) for line in seen.sums]
    allowed = reduced(honest, q)
    left = next((line for line in known.values() if not within(line, allowed, q)), None)
    if seen.least is None or left is None:
        return allowed
    members = {(s.user, s.update) for s in left if isinstance(s, Coordinate)}
    if len(members) + len(own) < seen.least:
        return allowed
    ks = {s.k for line in known.values() for s in line if isinstance(s, Coordinate)}
    whichever: list[Line] = [{Coordinate(user, update, k): 1 for user, update in members} for k in ks]
    return reduced([*honest, *whichever], q)


def lacking(seen: Transcript, knowledge: Knowledge) -> bool:
    """Return True if a result is there that cannot be known: the protocol would not be correct."""
    sums = (_honest(line, knowledge.own) for line in seen.results)
    return not all(within(line, knowledge.basis, knowledge.q) for line in sums)


def _honest(line: Line, own: Collection[int]) -> Line:
    """Return a combination without the adversary's own updates, which it knows anyway."""
    return {s: c for s, c in line.items() if isinstance(s, Coordinate) and s.user not in own}


def broken(seen: Transcript, knowledge: Knowledge) -> Iterator[str]:
    """Yield the laws other than `beyond` that a view breaks, as sentences."""
    if not seen.exact:
        yield "a result is not the sum over its members"
    if lacking(seen, knowledge):
        yield "a result does not follow from what the server has"
    yield from seen.misuse
    for line in knowledge.relations:
        yield f"a relation between secrets is known: {in_words(line, knowledge.q)}"


def learned(seen: Transcript, colluders: int) -> Iterator[str]:
    """Yield what the server and so many users learn beyond sums, and what is used twice; of many coalitions
    some are tried."""
    yield from seen.misuse
    base = seen.view()
    for coalition in spread(seen.users, colluders, TRIED_COALITIONS):
        leak = beyond(seen, seen.view(coalition, base))
        if leak is not None:
            who = "".join(f" and user {user}" for user in coalition)
            yield f"the server{who} know{'' if who else 's'} {leak.combination}"
            return
