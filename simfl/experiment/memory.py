"""Whether a run fits its memory: predicted before it starts.

What users and data take is `footprint`'s. The content that is held besides is known, to the byte, from a
shadow run of the first rounds. There is no such run where a bound in closed form fits already, and none that
would be long itself (FORECAST): then the bound is what is predicted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from simfl.crypto import mds
from simfl.dataplane.handles import U32
from simfl.dataplane.shadow import MemoryProbeOps
from simfl.dataplane.streamed_shares import BLOCK_COLUMNS
from simfl.engine.driver import drive
from simfl.engine.session import Session
from simfl.engine.setup import ClosedRound
from simfl.protocols.machine import Params
from simfl.results.trace import seldom_collecting
from simfl.scenario import schema
from simfl.scenario.footprint import gb, limit_bytes, present_bytes
from simfl.scenario.problems import error

ROUNDS = 2
"""What a round holds is known when the next has begun."""

COHORT = 8
"""Updates that one worker makes together, about."""

FORECAST = {True: 2_000, False: 30_000}
"""Users at once up to whom a run is forecast, with an offline phase and without: half a minute at most."""


@dataclass(frozen=True)
class Memory:
    """What an entry of the protocols would hold at once, users and data included, and what it takes where
    shares stream, in bytes. most: these are upper bounds."""

    held: int
    streamed: int | None = None
    most: bool = False

    @property
    def streams(self) -> bool:
        """Whether its coded shares are summed as they stream."""
        return self.streamed is not None

    def __str__(self) -> str:
        held = self.told(self.held)
        if self.streamed is None:
            return f"holds {held} at once"
        return f"its coded shares stream: {self.told(self.streamed)} at once (held: {held})"

    def told(self, nbytes: int) -> str:
        """A figure in words."""
        return f"{gb(nbytes)} GB" + (" (an upper bound)" if self.most else "")


def surely_fits(s: schema.Scenario, name: str, p: Params, read_bytes: int = 0) -> bool:
    """Whether there is no need to look: nothing is executed, or a bound on all that is held fits. read_bytes:
    the size of the data set that was read."""
    return s.payload == "shadow" or at_most(s, name, p) <= room_bytes(s, read_bytes)


def at_most(s: schema.Scenario, name: str, p: Params) -> int:
    """A bound on the content that an entry holds: four of each vector of each user, and each share sealed,
    opened and once more."""
    shares = s.protocols[name].shares_bytes(p, _circle(s))
    return _vectors(s, p) + shares


def plan(
    s: schema.Scenario,
    name: str,
    p: Params,
    make: Callable[[MemoryProbeOps], Session],
    may_stream: bool,
    read_bytes: int = 0,
) -> Memory:
    """Hold the coded shares of an entry, or sum them as they stream, whichever fits.

    make: a session of the entry with these operations, of ROUNDS rounds.

    Raises:
        ScenarioError: neither does.
    """
    present, exact = present_bytes(s, read_bytes), forecasts(s, name)
    if exact:
        weighed = weigh(make(MemoryProbeOps(p.q)))
        held, rest = weighed.peak, weighed.rest
    else:
        held, rest = at_most(s, name, p), _vectors(s, p)
    found = Memory(present + held, None, not exact)
    if found.held <= limit_bytes(s):
        return found
    message = f"memory_limit_gb={s.memory_limit_gb:g} is below the "
    if not may_stream:
        message += f"{found.told(found.held)} that {name} holds at once{_why(s)}"
        raise error(s, "memory_limit_gb", message)
    streamed = present + rest + passing_bytes(s, p)
    if streamed > limit_bytes(s):
        message += f"{found.told(streamed)} that {name} takes while its coded shares stream"
        raise error(s, "memory_limit_gb", f"{message} (held: {found.told(found.held)})")
    return replace(found, streamed=streamed)


def forecasts(s: schema.Scenario, name: str) -> bool:
    """Whether the first rounds of an entry are run in shadow to find out what it holds."""
    offline = s.protocols[name].offline
    flying = s.buffer.concurrency if s.buffer and not offline else None
    return min(_circle(s), flying or _circle(s)) <= FORECAST[offline]


def passing_bytes(s: schema.Scenario, p: Params) -> int:
    """What is there for a while when shares stream: a sum for each user; for each worker a mask with its
    noise, a block of its coded rows, a cohort's updates and what becomes of one; the audit's sum."""
    m = mds.share_length(p.d + 1, p.U, p.T)
    each = p.U * m + s.cohort * min(m, BLOCK_COLUMNS) + (COHORT + 4) * p.d
    return U32 * (s.cohort * m + max(1, s.workers) * each + 4 * p.d)


def _circle(s: schema.Scenario) -> int:
    """The users who have anything to do with each other."""
    return s.population.users if s.buffer else s.cohort


def _vectors(s: schema.Scenario, p: Params) -> int:
    return 4 * 8 * (p.d + 1) * (_circle(s) + 2)


def room_bytes(s: schema.Scenario, read_bytes: int = 0) -> float:
    """What users and data leave of the limit. read_bytes: the size of the data set that was read."""
    return limit_bytes(s) - present_bytes(s, read_bytes)


def _why(s: schema.Scenario) -> str:
    if not isinstance(s.clock, schema.Measured):
        return ""
    return "; with clock: measured nothing can be made later or twice, with modelled coded shares can stream"


def weigh(session: Session) -> MemoryProbeOps:
    """Run a session with operations that weigh to its end."""
    scale = session.ops
    assert isinstance(scale, MemoryProbeOps)

    async def publish(outcome: ClosedRound) -> None:
        scale.rest = max(scale.rest, scale.kept)

    running = drive(session, publish, lambda: None)
    with seldom_collecting():  # there may be millions of tokens
        try:
            while True:
                running.send(None)  # it waits for nothing: there is no content
        except StopIteration:
            return scale
