"""The memory of a run, predicted before it starts; and roughly its time.

Users and data are `checks`'. The content that is held besides is known, to the byte, from a shadow run of
the first rounds; where that would be long itself (FORECAST_USERS), a bound in closed form is the prediction.
"""

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
from simfl.scenario.checks import data_bytes, gb, limit_bytes, present_bytes, users_bytes
from simfl.scenario.messages import error
from simfl.scenario.schema import Scenario
from simfl.scenario.world import Measured
from simfl.trace.rows import seldom_collecting

FORECAST_ROUNDS = 2  # the content of a round is known when the next has begun
COHORT = 8  # updates that one worker makes together, about
FORECAST_USERS = {True: 2_000, False: 30_000}
"""Most users at once for a shadow run, with an offline phase and without: half a minute at most."""


@dataclass(frozen=True)
class Memory:
    """Bytes that an entry of the protocols would hold at once, users and data included."""

    held: int
    """Bytes if its coded shares are held."""
    streamed: int | None = None
    """Bytes if its coded shares are summed as they stream."""
    bound: bool = False
    """True if both are upper bounds."""

    def __str__(self) -> str:
        held = self.shown(self.held)
        if self.streamed is None:
            return f"holds {held} at once"
        return f"its coded shares stream: {self.shown(self.streamed)} at once (held: {held})"

    def shown(self, nbytes: int) -> str:
        return f"{gb(nbytes)} GB" + (" (an upper bound)" if self.bound else "")


def surely_fits(s: Scenario, name: str, p: Params, read_bytes: int = 0) -> bool:
    """Say if no plan is needed: nothing is executed, or a bound on everything that is held fits."""
    return s.payload == "shadow" or at_most(s, name, p) <= room_bytes(s, read_bytes)


def at_most(s: Scenario, name: str, p: Params) -> int:
    """Bound an entry's content: four of each user's vectors, and each share sealed, opened and once more."""
    return _vectors(s, p) + s.protocols[name].shares_bytes(p, _circle(s))


def plan(
    s: Scenario,
    name: str,
    p: Params,
    make: Callable[[MemoryProbeOps], Session],
    may_stream: bool,
    read_bytes: int = 0,
) -> Memory:
    """Hold the coded shares of an entry, or sum them as they stream. ScenarioError if neither fits.
    make: a session of FORECAST_ROUNDS rounds with these operations. read_bytes: of the data set."""
    present, offline = present_bytes(s, read_bytes), s.protocols[name].offline
    flying = s.buffer.concurrency if s.buffer and not offline else None
    held, rest = at_most(s, name, p), _vectors(s, p)
    exact = min(_circle(s), flying or _circle(s)) <= FORECAST_USERS[offline]
    if exact:
        weighed = measure_memory(make(MemoryProbeOps(p.q)))
        held, rest = weighed.peak, weighed.rest
    found = Memory(present + held, None, not exact)
    if found.held <= limit_bytes(s):
        return found
    figure = found.shown(found.held)
    if may_stream:
        streamed = present + rest + _passing_bytes(s, p)
        if streamed <= limit_bytes(s):
            return replace(found, streamed=streamed)
        needed = f"{found.shown(streamed)} that {name} takes while its coded shares stream (held: {figure})"
    else:
        needed = f"{figure} that {name} holds at once"
        if isinstance(s.clock, Measured):
            needed += "; with clock: measured nothing can be made later or twice"
            needed += ", with modelled coded shares can stream"
    raise error(s, "memory_limit_gb", f"memory_limit_gb={s.memory_limit_gb:g} is below the {needed}")


def _passing_bytes(s: Scenario, p: Params) -> int:
    """Return the bytes that are there for a while when shares stream."""
    # A sum for each user; for each worker a mask with its noise, a block of its coded rows, a cohort's
    # updates and what one update becomes; the audit's sum.
    m = mds.share_length(p.d + 1, p.U, p.T)
    each = p.U * m + s.cohort * min(m, BLOCK_COLUMNS) + (COHORT + 4) * p.d
    return U32.itemsize * (s.cohort * m + max(1, s.workers) * each + 4 * p.d)


def _circle(s: Scenario) -> int:
    """Return the number of users who exchange anything with each other."""
    return s.population.users if s.buffer else s.cohort


def _vectors(s: Scenario, p: Params) -> int:
    return 4 * 8 * (p.d + 1) * (_circle(s) + 2)


def room_bytes(s: Scenario, read_bytes: int = 0) -> float:
    """Return the part of the limit that users and data leave. read_bytes: of the data set, once read."""
    return limit_bytes(s) - present_bytes(s, read_bytes)


def measure_memory(session: Session) -> MemoryProbeOps:
    """Run a session to its end, and return its operations, which have counted what it held."""
    probe = session.ops
    assert isinstance(probe, MemoryProbeOps)

    async def publish(outcome: ClosedRound) -> None:
        probe.rest = max(probe.rest, probe.kept)

    running = drive(session, publish, lambda: None)
    with seldom_collecting():  # there may be millions of tokens
        try:
            while True:
                running.send(None)  # it waits for nothing: there is no content
        except StopIteration:
            return probe


# --- many users, before anything is built ---------------------------------------------------------
# The cost of a run besides the work that it executes is its trace's: each row is an event of the engine. A
# member of a round has about as many rows under every protocol that masks, and a third of them without.
# Measured in shadow runs of 10^3 to 10^5 users: 6.0 rows a member of fedavg's rounds, 19 to 20.1 of secagg's,
# secagg_plus' and lightsecagg's; 21 to 27 microseconds of CPU time a row.
ROWS = {False: 6.0, True: 20.0}  # of a member in a round, by whether there is an offline phase
ROW_S = 25e-6
START_S = 1.0
BASE_BYTES = 160_000_000  # the interpreter and its libraries


@dataclass(frozen=True)
class Forecast:
    """The seconds of all protocols on this kind of machine, and the most bytes of one of them."""

    seconds: float
    nbytes: float


def forecast(s: Scenario) -> Forecast:
    """Return about what a run takes, without the work itself where its payload is real."""
    seconds = START_S
    for name, entry in s.protocols.items():
        own = s.of(name)
        members = s.buffer.K if s.buffer else min(own.cohort, own.selection.usual(s.population.users))
        seconds += s.rounds * members * ROWS[entry.offline] * ROW_S
    users = max(users_bytes(s, name) for name in s.protocols)
    return Forecast(seconds, BASE_BYTES + users + data_bytes(s))
