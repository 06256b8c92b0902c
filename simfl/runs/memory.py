"""The memory of a run, predicted before it starts; and roughly its time.

`scenario.checks` knows the memory of users and data. A shadow run of the first rounds measures the other
content, to the byte. Where that run would take long itself (`FORECAST_USERS`), a bound in closed form is the
prediction.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from simfl.crypto import mds
from simfl.crypto.keys import TAG_BYTES
from simfl.crypto.shamir import SHARE_BYTES
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

FORECAST_ROUNDS = 2
"""Rounds of the shadow run: all content of a round is held only when the next has begun."""
COHORT = 8
"""Updates that one worker trains together, about."""
FORECAST_USERS = {True: 2_000, False: 30_000}
"""Maximum users of a shadow run, with an offline phase and without: it takes half a minute at most."""


@dataclass(frozen=True)
class Memory:
    """Memory that an entry of the protocols would hold at once, users and data included."""

    held: int
    """[B] If its coded shares are held."""
    streamed: int | None = None
    """[B] If its coded shares are summed as they stream; None if they need not."""
    bound: bool = False
    """True if both are upper bounds."""

    def __str__(self) -> str:
        held = self.shown(self.held)
        if self.streamed is None:
            return f"holds {held} at once"
        return f"its coded shares stream: {self.shown(self.streamed)} at once (held: {held})"

    def shown(self, nbytes: int) -> str:
        """Return a number of bytes as text, marked if it is a bound."""
        return f"{gb(nbytes)} GB" + (" (an upper bound)" if self.bound else "")


def is_within_limit(s: Scenario, name: str, p: Params, read_bytes: int = 0) -> bool:
    """Return True if no plan is needed: nothing is executed, or an upper bound of all content fits."""
    # The bound costs no work. Most runs are far below the limit, and skip the shadow run.
    return s.payload == "shadow" or at_most(s, name, p) <= room_bytes(s, read_bytes)


def at_most(s: Scenario, name: str, p: Params) -> int:
    """Return a bound of an entry's content [B]: four vectors a user, and three copies of each share."""
    # A share may exist sealed, opened and summed. That no protocol holds more is tested and not derived:
    # `test_the_bound_in_closed_form_is_one` compares the bound with shadow runs of all protocols.
    return _vectors(s, name, p) + s.protocols[name].shares_bytes(p, _circle(s))


def plan(
    s: Scenario,
    name: str,
    p: Params,
    make: Callable[[MemoryProbeOps], Session],
    may_stream: bool,
    read_bytes: int = 0,
) -> Memory:
    """Return the memory of an entry, whose coded shares are held if they fit, and else summed as they stream.

    Args:
        s: The scenario.
        name: The entry.
        p: Its parameters.
        make: Returns a session of `FORECAST_ROUNDS` rounds with these operations.
        may_stream: The protocol can sum its coded shares as they stream.
        read_bytes: Bytes of the data set.

    Raises:
        ScenarioError: Neither fits into `memory_limit_gb`.
    """
    present, offline = present_bytes(s, read_bytes), s.protocols[name].offline
    # Without masks only users in flight hold anything. With masks, every user holds a share of each mask.
    in_flight = s.buffer.concurrency if s.buffer and not offline else None
    # The bound is replaced below if the shadow run is affordable.
    held, rest = at_most(s, name, p), _vectors(s, name, p)
    exact = min(_circle(s), in_flight or _circle(s)) <= FORECAST_USERS[offline]
    if exact:
        probe = measure_memory(make(MemoryProbeOps(p.q)))
        held, rest = probe.peak, probe.rest
    memory = Memory(present + held, None, not exact)
    if memory.held <= limit_bytes(s):
        return memory
    figure = memory.shown(memory.held)
    if may_stream:
        # Only if holding does not fit: a sum that is requested late has its streamed rows coded again.
        streamed = present + rest + _passing_bytes(s, p)
        if streamed <= limit_bytes(s):
            return replace(memory, streamed=streamed)
        needed = f"{memory.shown(streamed)} that {name} takes while its coded shares stream (held: {figure})"
    else:
        needed = f"{figure} that {name} holds at once"
        if isinstance(s.clock, Measured):
            needed += "; with clock: measured nothing can be computed later or twice"
            needed += ", with modelled coded shares can stream"
    remedy = "raise it, or use fewer users or a smaller model"
    message = f"memory_limit_gb={s.memory_limit_gb:g} is below the {needed}: {remedy}"
    raise error(s, "memory_limit_gb", message)


def _passing_bytes(s: Scenario, p: Params) -> int:
    """Return the bytes of temporary content when shares stream."""
    # A sum for each user; the audit's sum; and for each worker a mask with its noise, a block of its coded
    # rows, the updates of a cohort and four forms of one update.
    m = mds.share_length(p.width, p.U, p.T)
    # Elements of d + 1: beside the update, its weight is masked and summed.
    each = p.U * m + s.cohort * min(m, BLOCK_COLUMNS) + (COHORT + 4) * p.width
    return U32.itemsize * (s.cohort * m + max(1, s.workers) * each + 4 * p.width)


def _circle(s: Scenario) -> int:
    """Return the number of users that exchange messages with each other."""
    return s.population.users if s.buffer else s.cohort


def _vectors(s: Scenario, name: str, p: Params) -> int:
    """Return the bytes of four vectors, of 8-byte elements, for each user that may have an update; with
    repair, three copies of each share of its seeds of noise too."""
    holders = _circle(s)
    if s.buffer is not None and not s.protocols[name].offline:
        # In flight, in the buffer, and in the aggregation that is open.
        holders = min(holders, (s.buffer.concurrency or holders) + 2 * s.buffer.K)
    row = p.repaired * SHARE_BYTES + TAG_BYTES
    seeds = 3 * row * holders * (p.k + 1 if p.k else holders) if p.repaired else 0
    return 4 * 8 * (p.width) * (holders + 2) + seeds


def room_bytes(s: Scenario, read_bytes: int = 0) -> float:
    """Return the bytes of the limit that users and data leave.

    Args:
        s: The scenario.
        read_bytes: Bytes of the data set; 0 before it is read.
    """
    return limit_bytes(s) - present_bytes(s, read_bytes)


def measure_memory(session: Session) -> MemoryProbeOps:
    """Run a session to its end, and return its operations, which measured the content that it held."""
    probe = session.ops
    assert isinstance(probe, MemoryProbeOps)

    async def publish(outcome: ClosedRound) -> None:
        # When a round closes, its aggregate and its audit are held.
        probe.rest = max(probe.rest, probe.kept)

    # The run's own driver, stepped by hand: another loop over the events would drift apart from it.
    running = drive(session, publish, lambda: None)
    # A session may have millions of tokens, which a garbage collection would visit again and again.
    with seldom_collecting():
        try:
            # Without content a session waits for nothing, so no event loop is needed.
            while True:
                running.send(None)
        except StopIteration:
            return probe


# --- many users, before anything is built ---------------------------------------------------------
# Beside the work that it executes, a run costs what its trace costs: each row is an event of the engine. A
# member of a round has about the same number of rows under each protocol that masks, and a third of it
# without masks.
# Measured in shadow runs of 10^3 to 10^5 users: 6.0 rows a member of fedavg's rounds, 19 to 20.1 of secagg's,
# secagg_plus' and lightsecagg's; 21 to 27 microseconds of CPU time a row. Held by
# `test_the_rows_of_a_member_are_those_of_the_forecast` and `test_a_run_takes_about_its_forecast`.
ROWS = {False: 6.0, True: 20.0}
"""Rows of a member in a round, without an offline phase and with one."""
ROW_S = 25e-6
"""[s] CPU time a row."""
START_S = 1.0
"""[s] Before the first event."""
BASE_BYTES = 160_000_000
"""[B] The interpreter and its libraries."""


@dataclass(frozen=True)
class Forecast:
    """The rough cost of a run."""

    seconds: float
    """Of all protocols, on a machine like ours."""
    nbytes: float
    """[B] Maximum memory of one protocol."""


def forecast(s: Scenario) -> Forecast:
    """Return the rough cost of a run, without the work of users and server that a real payload executes."""
    seconds = START_S
    for name, entry in s.protocols.items():
        of = s.of(name)
        # An aggregation of a buffer has K updates, from any users.
        members = s.buffer.K if s.buffer else min(of.cohort, of.selection.usual(s.population.users))
        seconds += s.rounds * members * ROWS[entry.offline] * ROW_S
    users = max(users_bytes(s, name) for name in s.protocols)
    return Forecast(seconds, BASE_BYTES + users + data_bytes(s))
