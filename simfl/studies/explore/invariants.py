"""Invariants of a synchronous round, whichever users it loses.

- Sum: a round ends with the exact sum over exactly the users whose upload was in time, or with an abort and
  its reason.
- End: it ends with the sum if and only if the thresholds allow it.
- Haste: a recovery with enough answers does not wait for its deadline, unless the scenario waits for all.
- Honesty: no party refuses a message of an honest party.
- Noise: with repair, and losses that it tolerates, the sum has the promised variance, of parts by name.
- Secrets: nothing beyond that sum is learned (`simfl.privacy.leaks`).

`tests/studies/explore/test_faults.py` plants a fault for each, and shows that the explorer finds it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from simfl.protocols.graphs import Graph
from simfl.protocols.loopback import LoopbackRound
from simfl.protocols.machine import SERVER, Params

Members = tuple[int, ...]


@dataclass(frozen=True)
class Observation:
    """A watched round."""

    p: Params
    """Its parameters."""
    graph: Graph | None
    """The graph of users who share with each other; None if all do."""
    committee: frozenset[int] | None
    """The members of the round's committee; None without one."""
    out: LoopbackRound
    """Its messages and its end."""
    clients: Mapping[int, Any]
    """Users' machines."""
    exact: bool | None
    """The aggregate is the plain sum of its members; None without an aggregate."""
    noise: float | None = None
    """Variance, over the promised one, of the noise that is in the aggregate; None unless sought."""

    @property
    def members(self) -> Members | None:
        """Users in the aggregate; None without one."""
        return None if self.out.result is None else tuple(m.user for m in self.out.result.members)


def of_end(members: Members | None, reason: str | None, expected: frozenset[int] | None) -> Iterator[str]:
    """Yield the differences between a round's end and the expected one, as sentences.

    Args:
        members: Users in the aggregate; None of an aborted round.
        reason: Reason of the abort.
        expected: Users who must be in the aggregate; None if there must be none.
    """
    if expected is None:
        if members is not None:
            yield f"there is a result over {sorted(members)}, though `needed` allows none"
    elif members is None:
        yield f"there is no result ({reason}), though `needed` allows one over {sorted(expected)}"
    elif sorted(members) != sorted(expected):
        yield f"users {sorted(expected)} uploaded in time, but {sorted(members)} were counted"


def of_itself(seen: Observation) -> Iterator[str]:
    """Yield the violations that do not depend on the pattern of losses, as sentences."""
    out = seen.out
    # A round ends by a result or by an abort, so exactly one of them is None.
    if (out.result is None) == (out.reason is None):
        yield f"the round must end in one way: result {out.result is not None}, reason {out.reason!r}"
    if out.reason == "":
        yield "the round was aborted without a reason"
    if out.result is not None and not seen.exact:
        yield f"the aggregate is not the sum over its members {list(seen.members or ())}"
    lost = seen.p.N - len(seen.members or ())
    if seen.noise is not None and lost <= seen.p.repaired and abs(seen.noise - 1) > 1e-12:
        yield f"with {lost} users lost, the noise has {seen.noise:.4g} of the promised variance"
    for party, refusal in out.refused:
        receiver, sender = ("the server" if p == SERVER else f"user {p}" for p in (party, refusal.sender))
        yield f"{receiver} refused {refusal.message} of {sender}: {refusal.why}"
    # A protocol that waits for all answers is excepted: there the deadline is the end.
    if out.result is not None and "recovery" in out.passed and not seen.p.all_answers:
        yield "the recovery waited for its deadline, though the answers before it were enough"
