"""Invariants of what an adversary may learn: the sum of the round, and nothing beyond it.

A view is compared with the span of the allowed sums. A combination of updates outside of it is a leak. The
one that is reported is over the fewest users that a bounded search finds, since a reader checks its proof by
hand.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import combinations

from simfl.dataplane.terms import Coordinate, Secret
from simfl.privacy.leaks.coalitions import spread
from simfl.privacy.leaks.elimination import Basis, Line, reduced, within
from simfl.privacy.leaks.knowledge import Knowledge, in_words
from simfl.privacy.leaks.views import Transcript

TRIED_COALITIONS = 12
"""Coalitions of a size that `privacy_findings` tries."""
SEARCHED_USERS = 2
"""Users up to which a smallest leak is searched for; of more, the basis shows one."""


@dataclass(frozen=True)
class Leak:
    """A combination of updates that an adversary must not know, and its derivation."""

    users: tuple[int, ...]
    """Users whose updates are in it, ascending."""
    combination: str
    """The combination, in words."""
    proof: tuple[str, ...]
    """Its derivation, line by line."""

    def __str__(self) -> str:
        return f"{self.combination} is known, from\n" + "\n".join(f"  {line}" for line in self.proof)


def find_leak(seen: Transcript, knowledge: Knowledge) -> Leak | None:
    """Return a leak over the fewest users; None if nothing beyond the sums is known."""
    q, basis = knowledge.q, knowledge.basis
    allowed = allowed_sums(seen, knowledge)
    # Without a leak, the usual case, no subset is searched.
    if all(within(line, allowed, q) for line in basis.values()):
        return None
    # Only users whose updates are in a known combination can leak.
    honest = sorted({s.user for line in basis.values() for s in line if isinstance(s, Coordinate)})
    sizes = range(1, min(SEARCHED_USERS, len(honest)) + 1)
    for users in (subset for size in sizes for subset in combinations(honest, size)):
        leak = _over(knowledge, users, allowed)
        if leak is not None:
            return leak
    # There is one, as a line of the basis is not allowed.
    leak = _over(knowledge, tuple(honest), allowed)
    assert leak is not None
    return leak


def _over(knowledge: Knowledge, users: Collection[int], allowed: Basis) -> Leak | None:
    q = knowledge.q
    # Traced anew: the basis was computed without proofs, which take longer.
    lines = knowledge.updates(lambda symbol: symbol.user in users, traced=True).values()
    leaks = [line for line in lines if not within(line, allowed, q)]
    if not leaks:
        return None
    # The combination of the fewest unknowns is the easiest to read.
    line = min(leaks, key=len)
    members = sorted({symbol.user for symbol in line if isinstance(symbol, Coordinate)})
    return Leak(tuple(members), in_words(line, q), tuple(knowledge.proof(line)))


def allowed_sums(seen: Transcript, knowledge: Knowledge) -> Basis:
    """Return a basis of the sums that may be known, without the adversary's own updates.

    Where a transcript allows one further sum (`Transcript.min_members`), it is the sum over the members of
    the first known combination that is not allowed otherwise, if they and the colluders are enough.
    """
    q, colluders, basis = knowledge.q, knowledge.colluders, knowledge.basis
    honest = [_without(colluders, line) for line in seen.sums]
    allowed = reduced(honest, q)
    # A malicious server chooses the users of its one sum. The first known combination names them; all others
    # must then be multiples of that sum.
    leak = next((line for line in basis.values() if not within(line, allowed, q)), None)
    if seen.min_members is None or leak is None:
        return allowed
    members = {(s.user, s.update) for s in leak if isinstance(s, Coordinate)}
    # Over fewer users than the protocol needs, even one sum is a leak.
    if len(members) + len(colluders) < seen.min_members:
        return allowed
    ks = {s.k for line in basis.values() for s in line if isinstance(s, Coordinate)}
    # In all coordinates that are known, with equal factors: another proportion is no sum.
    further: list[Line] = [{Coordinate(user, update, k): 1 for user, update in members} for k in ks]
    return reduced([*honest, *further], q)


def _without(colluders: Collection[int], line: Line) -> Line:
    """Return a combination without the adversary's own updates, which it has anyway."""
    return {s: c for s, c in line.items() if isinstance(s, Coordinate) and s.user not in colluders}


def violations(seen: Transcript, knowledge: Knowledge) -> Iterator[str]:
    """Yield the invariants other than `find_leak`'s that a view violates, as sentences."""
    if not seen.exact:
        yield "a result is not the sum over its members"
    # If the server could not derive its own result, the symbols would be at fault and the proof void.
    results = (_without(knowledge.colluders, line) for line in seen.results)
    if not all(within(line, knowledge.basis, knowledge.q) for line in results):
        yield "a result does not follow from what the server has"
    yield from seen.misuse
    yield from open_noise(seen, knowledge)
    for line in knowledge.relations:
        yield f"a relation between secrets is known: {in_words(line, knowledge.q)}"


def open_noise(seen: Transcript, knowledge: Knowledge) -> Iterator[str]:
    """Yield each seed of noise that a view has, although a sum counts on that noise, as a sentence."""
    for seed in seen.noise:
        if isinstance(seed, Secret) and seed.party not in knowledge.colluders and knowledge.knows(seed):
            yield f"noise that a sum counts on is known: {seed}"


def privacy_findings(seen: Transcript, colluders: int) -> Iterator[str]:
    """Yield seeds and nonces that are used twice, then what the server and colluders learn beyond sums.

    Args:
        seen: The rounds.
        colluders: Size of the coalitions; `TRIED_COALITIONS` of them are tried, up to the first that learns
            more.
    """
    yield from seen.misuse
    base = seen.view()
    for coalition in spread(seen.users, colluders, TRIED_COALITIONS):
        knowledge = seen.view(coalition, base)
        leak = find_leak(seen, knowledge)
        if leak is not None:
            users = "".join(f" and user {user}" for user in coalition)
            yield f"the server{users} know{'' if users else 's'} {leak.combination}"
            return
        yield from open_noise(seen, knowledge)
