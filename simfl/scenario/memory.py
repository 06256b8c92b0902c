"""Whether a run fits its memory: predicted before it starts, from a shadow run of its first rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simfl.crypto import mds
from simfl.engine.session import Session
from simfl.engine.streams import WIDTH
from simfl.engine.weighing import Weighing, weigh
from simfl.protocols.base import Params
from simfl.protocols.ops import U32
from simfl.scenario import schema
from simfl.scenario.placed import error

ROUNDS = 2
"""What a round holds is known when the next has begun."""


COHORT = 8
"""Updates that one worker makes together, about."""


@dataclass(frozen=True)
class Memory:
    """What an entry of the protocols would hold at once, in bytes, and what it takes where shares stream."""

    held: int
    streamed: int | None = None

    @property
    def streams(self) -> bool:
        """Whether its coded shares are summed as they stream."""
        return self.streamed is not None

    def __str__(self) -> str:
        held = f"{self.held / 1e9:.3g} GB"
        if self.streamed is None:
            return f"holds {held} at once"
        return f"its coded shares stream: {self.streamed / 1e9:.3g} GB at once (held: {held})"


def surely_fits(s: schema.Scenario, p: Params, offline: bool) -> bool:
    """Whether there is no need to look: nothing is executed, or even four of each vector of each user, and
    each coded share sealed, opened and once more, are within the limit."""
    users = s.population.users if s.buffer else s.cohort
    vectors = 4 * 8 * (p.d + 1) * (users + 2)
    shares = 3 * users**2 * U32 * mds.share_length(p.d + 1, p.U, p.T) if offline else 0
    return s.payload == "shadow" or vectors + shares <= limit_bytes(s)


def plan(
    s: schema.Scenario, name: str, p: Params, make: Callable[[Weighing], Session], may_stream: bool
) -> Memory:
    """Hold the coded shares of an entry, or sum them as they stream, whichever fits.

    make: a session of the entry with these operations, of ROUNDS rounds.

    Raises:
        ScenarioError: neither does.
    """
    weighed = weigh(make(Weighing(p.q)))
    held, streamed = weighed.peak, weighed.rest + passing_bytes(s, p)
    if held <= limit_bytes(s):
        return Memory(held)
    place = f"memory_limit_gb={s.memory_limit_gb:g} is below"
    if not may_stream:
        message = f"{place} the {held / 1e9:.3g} GB that {name} holds at once{_why(s)}"
        raise error(s, "memory_limit_gb", message)
    if streamed > limit_bytes(s):
        message = f"{place} the {streamed / 1e9:.3g} GB that {name} takes while its coded shares stream"
        raise error(s, "memory_limit_gb", f"{message} (held: {held / 1e9:.3g} GB)")
    return Memory(held, streamed)


def passing_bytes(s: schema.Scenario, p: Params) -> int:
    """What is there for a while when shares stream: a sum for each user; for each worker a mask with its
    noise, a block of its coded rows, a cohort's updates and what becomes of one; the audit's sum."""
    m = mds.share_length(p.d + 1, p.U, p.T)
    each = p.U * m + s.cohort * min(m, WIDTH) + (COHORT + 4) * p.d
    return U32 * (s.cohort * m + max(1, s.workers) * each + 4 * p.d)


def limit_bytes(s: schema.Scenario) -> float:
    """The scenario's limit."""
    return s.memory_limit_gb * 1e9


def _why(s: schema.Scenario) -> str:
    if not isinstance(s.clock, schema.Measured):
        return ""
    return "; with clock: measured nothing can be made later or twice, with modelled coded shares can stream"
