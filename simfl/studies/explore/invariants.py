"""The laws of a synchronous round, whatever becomes of its users.

Sum: a round ends with the exact sum over exactly those whose upload came in time, or with an abort and its
reason. Life: it ends with the sum if and only if the thresholds allow it. Haste: a recovery with enough
answers does not wait for its deadline, unless the scenario waits for all. Honesty: nobody refuses what an
honest party sends. Secrets: nothing beyond that sum is learned (`simfl.privacy.leaks`).
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
    """A round that was watched. p: its parameters; graph: who shares with whom, None where everybody does;
    exact: True if the aggregate is its members' plain sum, None without one."""

    p: Params
    graph: Graph | None
    out: LoopbackRound
    clients: Mapping[int, Any]
    exact: bool | None

    @property
    def members(self) -> Members | None:
        return None if self.out.result is None else tuple(m.user for m in self.out.result.members)


def of_life(members: Members | None, reason: str | None, wanted: frozenset[int] | None) -> Iterator[str]:
    """Yield the broken laws, each as a sentence, that compare a round's end with the one that must come."""
    if wanted is None:
        if members is not None:
            yield "there is a result, though the thresholds do not allow one"
    elif members is None:
        yield f"there is no result ({reason}), though the thresholds allow one over {sorted(wanted)}"
    elif sorted(members) != sorted(wanted):
        yield f"users {sorted(wanted)} uploaded in time, but {sorted(members)} were counted"


def of_itself(seen: Observation) -> Iterator[str]:
    """Yield the broken laws that do not depend on who was meant to be lost."""
    out = seen.out
    if (out.result is None) == (out.reason is None):
        yield f"the round must end in one way: result {out.result is not None}, reason {out.reason!r}"
    if out.reason == "":
        yield "the round was aborted without a reason"
    if out.result is not None and not seen.exact:
        yield f"the aggregate is not the sum over its members {list(seen.members or ())}"
    for party, refusal in out.refused:
        one, other = ("the server" if p == SERVER else f"user {p}" for p in (party, refusal.sender))
        yield f"{one} refused {refusal.message} of {other}: {refusal.why}"
    if out.result is not None and "recovery" in out.passed and not seen.p.all_answers:
        yield "the recovery waited for its deadline, though the answers before it were enough"
