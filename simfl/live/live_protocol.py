"""One protocol's live run: how its two sides are made, wherever they are, and its result."""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from simfl.dataplane.eager import EagerOps
from simfl.engine.warm_up import rehearse, train
from simfl.errors import ScenarioError, cut
from simfl.live.buffer_user import LiveBufferUser
from simfl.live.connection import Sockets, WireConfig
from simfl.live.hello import DOWN, UP, Admission
from simfl.live.merge import merged
from simfl.live.processes import training_thread
from simfl.live.server import LiveServer
from simfl.live.unsupported import problems
from simfl.live.user import LiveUser
from simfl.live.user_reports import is_possible
from simfl.live.wire import Codec, messages
from simfl.runs.build import Experiment, build, make_clocks
from simfl.runs.results.round_summary import Measurement
from simfl.runs.simulation import measurement
from simfl.scenario.messages import problem
from simfl.scenario.schema import Scenario
from simfl.trace import rows
from simfl.trace.reader import TraceError, rows_of
from simfl.trace.rows import SERVER, Row
from simfl.virtual_time import NS


@dataclass(frozen=True)
class LiveStats:
    """Facts of one protocol's live run."""

    wall_s: float
    """Of the whole protocol, on the machine's clock."""
    overrun: float
    """The share of step time by which steps were late. What users report of their own is in it."""
    held_s: float
    """The longest real work of a step, during which its process received nothing; of users by their word."""
    refused: dict[str, int]
    """Frames and connections that were cut off, by reason."""
    silent: tuple[int, ...]
    """Users without a report at the end."""
    clocks: dict[int, tuple[float, float, float]] = field(default_factory=dict)
    """[s] Of users on other machines: the server's clock less theirs as the run began, its gain since,
    the most by which these are wrong. A user's own word, held within bounds."""
    unchecked: int = 0
    """Aggregates that nobody could check."""
    server_overrun: float = 0.0
    """The share of the server's own step time by which its steps were late."""
    server_held_s: float = 0.0
    """The longest real work of a step of the server."""
    user_claims: dict[int, tuple[float, float, float]] = field(default_factory=dict)
    """[s] Of users, each by its own word: its steps, by how much they were late, the longest real work."""


Played = tuple[rows.Trace, list[Measurement], LiveStats]


def prepared(scenario: Scenario) -> Experiment:
    """Return the experiment of a scenario that can be played; ScenarioError with every key that cannot."""
    study = build(scenario)
    if found := [problem(scenario, path, message) for path, message in problems(study)]:
        raise ScenarioError(found)
    return study


class LiveProtocol:
    """One entry of a scenario's protocols, to be run live.

    Args:
        study: The experiment.
        name: The entry.
        sockets: Sockets of its users and server.
        admission: Admission of users to the run; unless given, of users that this process forks.
        join_s: Seconds within which users must join.
        begins_without: Users that have not joined by then are offline, and the run begins.
    """

    def __init__(
        self,
        study: Experiment,
        name: str,
        sockets: Sockets,
        admission: Admission | None = None,
        join_s: float = 120,
        begins_without: bool = False,
    ) -> None:
        self.study, self.name = study, name
        self.scenario, self.trainer = study.scenario.of(name), study.trainers[name]
        self.kind = self.scenario.protocols[name]
        self.params = self.scenario.params(name, self.trainer.d)
        self.users = self.scenario.population.users
        self._repeat: Callable[[], None] = lambda: None  # one user's part of a rehearsal, once there was one
        up, down = messages(self.kind, self.params)
        most_bytes = 2**16 + 64 * self.users + 8 * self.trainer.d * max(4, self.users)
        self.wires = WireConfig(
            up=Codec([*up, *UP], self.kind, self.params, self.users),
            down=Codec([*down, *DOWN], self.kind, self.params, self.users),
            most_bytes=most_bytes,
            admission=admission or local_admission(self.scenario),
            links=study.people.links if sockets.has_links else None,
            server_link=study.people.server_link if sockets.has_links else None,
            jitter=study.people.jitter(),
            quota_bytes=(self.scenario.rounds + 1) * len(up) * most_bytes,
            join_s=join_s,
            begins_without=begins_without,
            sockets=sockets,
        )

    def warm(self) -> None:
        """Do what takes longer the first time, before this process is forked."""
        s = self.scenario
        self._repeat = rehearse(self.kind, self.params, s.cohort, s.learning.server)
        train(self.trainer, self.trainer.shapes())

    def _side(self, make: Callable[..., Any]) -> Any:
        clock, ops = make_clocks(self.study)(self.name), EagerOps(self.params.q)
        return self.study.assemble(partial(make, self.wires), self.name, clock, ops)

    def server(self) -> LiveServer:
        server: LiveServer = self._side(LiveServer)
        return server

    async def worker(self, users: Sequence[int]) -> Executor:
        """Make this process of some users warm, which was forked from a warm one; return the thread in which
        they train."""
        self._repeat()
        return await training_thread(partial(train, self.trainer, users))

    def user(self, user: int, address: tuple[str, int], worker: Executor | None = None) -> LiveUser:
        one = LiveBufferUser if self.kind.asynchronous else LiveUser
        made: LiveUser = self._side(partial(one, user, address, worker))
        return made

    async def be_users(
        self, mine: Sequence[int], address: tuple[str, int], worker: Executor | None = None
    ) -> bool:
        """Be some of the users until the run is over, or the server is gone; return which of them."""
        worker = worker or await self.worker(mine)
        made = [self.user(user, address, worker) for user in mine]
        await asyncio.gather(*(user.run() for user in made))
        return all(user.ended for user in made)

    def outcome(self, server: LiveServer, wall_s: float) -> Played:
        """Return the trace that all parties noted together, the checked aggregates, and the facts."""
        session, runtime = server.session, server.runtime
        parts: dict[int, list[Row]] = {SERVER: list(runtime.trace)}
        done, until_ns = session.reports.done, time.monotonic_ns() - session.origin
        for user in done:
            try:
                reported = rows_of("".join(session.reports.lines.get(user, ())), self.users)
            except (TraceError, RecursionError) as fault:
                session.count(f"user {user}: {cut(str(fault))}")
                continue
            most = self.scenario.rounds, until_ns, self.wires.most_bytes
            parts[user] = [row for row in reported if is_possible(row, user, *most)]
            if len(parts[user]) < len(reported):
                session.count(f"user {user}: rows that cannot be its own, or not in this run")
        # Where a clock has moved by more than its pings may err, half of it is the least error on average.
        moved = {user: one.ahead_ns // 2 for user, one in done.items() if abs(one.ahead_ns) > one.off_ns}
        trace = merged(parts, server.users.broken_off, moved)
        trace.timed_by = runtime.trace.timed_by
        measured = [asyncio.run(measurement(runtime.ops, closed, None)) for closed in server.audited(trace)]
        late_ns = runtime.late_ns + sum(one.late_ns for one in done.values())
        steps_ns = runtime.steps_ns + sum(one.steps_ns for one in done.values())
        silent = tuple(sorted(set(range(self.users)) - done.keys()))
        held_s = max([runtime.held_ns, *(one.held_ns for one in done.values())]) / NS
        overrun = late_ns / max(1, steps_ns)
        clocks = {
            user: (one.offset_ns / NS, one.ahead_ns / NS, one.off_ns / NS)
            for user, one in sorted(done.items())
            if one.off_ns
        }
        claims = {
            user: (one.steps_ns / NS, one.late_ns / NS, one.held_ns / NS)
            for user, one in sorted(done.items())
        }
        aggregates = (closed.round for closed in server.side.outcomes if closed.unaudited is not None)
        unchecked = sum(measured[index].aggregate_exact is None for index in aggregates)
        refused = dict(session.refused)
        server_only = runtime.late_ns / max(1, runtime.steps_ns), runtime.held_ns / NS
        stats = LiveStats(wall_s, overrun, held_s, refused, silent, clocks, unchecked, *server_only, claims)
        return trace, measured, stats


def local_admission(scenario: Scenario) -> Admission:
    """Return the admission of users in processes that are forked: they know a token, and have no secrets."""
    own = scenario.entropy == "os"
    token = secrets.token_hex(16)
    tokens = dict.fromkeys(range(scenario.population.users), token)
    return Admission(tokens, one_clock=True, own_entropy=own, reveals=own)
