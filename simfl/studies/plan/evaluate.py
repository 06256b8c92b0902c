"""One setting run in shadow under the modelled clock: seconds, bytes and joules of its aggregates.

The users, their data and the model are made once for each seed, and every setting meets them.
"""

import asyncio
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from simfl.engine.driver import drive
from simfl.engine.setup import ClosedRound
from simfl.runs.build import Experiment, build, modelled
from simfl.runs.results import metrics
from simfl.runs.results.energy import FJ
from simfl.runs.users import UserPopulation
from simfl.scenario.fleet import Fleet
from simfl.scenario.load import load
from simfl.scenario.world import ByDisconnect, Deadlines
from simfl.studies.plan.losses import Losing
from simfl.studies.plan.settings import Promise, Setting
from simfl.trace.rows import SERVER, End, Sent, TimerSet, Trace, seldom_collecting
from simfl.virtual_time import NS
from simfl.world.links import LinkState

AGGREGATIONS = 10  # of a buffer's run
SEEN, LEAST_SEEN = 4_000, 3  # users in rounds in which losses are counted, and the fewest rounds
MARKS = (TimerSet, End)  # the rows at which a wait begins or ends


@dataclass(frozen=True)
class Outcome:
    """A setting's run under one seed. seconds: per aggregate, infinite without any; user_mb: up and down, of
    a user in a round; user_j: the same in joules; updates: in all aggregates; why: a failure's reason;
    waits: by deadline, the longest time that the server had to wait for a message."""

    seconds: float
    user_mb: float
    user_j: float | None
    rounds: int
    completed: int
    updates: int
    why: str
    waits: Mapping[str, float]


@dataclass(frozen=True)
class Change:
    """Factors on what is given: the rates of users' links and of the server's, the slowness of devices, and
    the length of updates (the work of training stays)."""

    links: float = 1.0
    server: float = 1.0
    slowdown: float = 1.0
    longer: float = 1.0


AS_GIVEN = Change()


@dataclass(frozen=True)
class World:
    """The users of a fleet under one seed, ready for any setting."""

    study: Experiment

    @classmethod
    def of(cls, fleet: Fleet, seed: int) -> "World":
        return cls(build(load({**fleet.world(), "protocols": ["fedavg"]}, {"seed": seed})))

    def run(
        self, setting: Setting, rounds: int, deadlines: Deadlines | None = None, change: Change = AS_GIVEN
    ) -> Outcome:
        """Run a setting so many rounds in this world; with patience, unless other deadlines are given."""
        s, seed = setting.scenario, self.study.scenario.seed
        s = s.model_copy(update={"seed": seed, "rounds": rounds, "deadlines": deadlines or s.deadlines})
        trainer, people = copy(self.study.trainer), self.study.people
        trainer.d = max(1, round(change.longer * trainer.d))
        if change != AS_GIVEN:
            people = _changed(people, change)
        study = replace(self.study, scenario=s, trainers={setting.name: trainer}, people=people)
        session = study.session(setting.name, modelled(study))

        async def publish(outcome: ClosedRound) -> None:
            """Drop the round: its rows are in the trace."""

        with seldom_collecting():
            asyncio.run(drive(session, publish, lambda: None))
            return outcome_of(session.trace, isinstance(s.detect, ByDisconnect))


@dataclass(frozen=True)
class PlainSums:
    """Plain sums of a fleet's users, in rounds and by a buffer: settings follow from them."""

    world: World
    fleet: Fleet

    def per_second(self, buffer: Mapping[str, Any]) -> float:
        """Return the updates that a buffer takes in a second."""
        said = {"buffer": buffer, "protocols": ["fedbuff"]}
        s = load(self.fleet.world() | said)
        seconds = self.world.run(Setting("fedbuff", s, Promise(0.0, None)), AGGREGATIONS).seconds
        return float(buffer["K"]) / seconds

    def losing(self) -> Losing:
        """Return the chances as they are seen in rounds of all users; a user away at the start is lost."""
        users = self.fleet.population.users
        setting = Setting("fedavg", self.world.study.scenario, Promise(0.0, None))
        outcome = self.world.run(setting, max(LEAST_SEEN, SEEN // users))
        return Losing.seen(users * outcome.rounds - outcome.updates, users * outcome.rounds)


def _changed(people: UserPopulation, change: Change) -> UserPopulation:
    """Return the same people with other devices and links."""

    def links(user: int, now: int) -> LinkState:
        state = people.links(user, now)
        up_bps, down_bps = (round(change.links * bps) for bps in (state.up_bps, state.down_bps))
        return state._replace(up_bps=up_bps, down_bps=down_bps)

    def server(now: int) -> tuple[int, int, int]:
        up_bps, down_bps, until = people.server_link(now)
        return round(change.server * up_bps), round(change.server * down_bps), until

    return replace(people, slowdown=change.slowdown * people.slowdown, links=links, server_link=server)


def outcome_of(trace: Trace, told: bool) -> Outcome:
    """Return what a trace says of its aggregates. told: as for `waits`."""
    rounds = metrics.rounds(trace)
    completed = [r for r in rounds if r.reason is None]
    selected = sum(r.selected for r in rounds)
    moved = sum(r.bytes_up + r.bytes_down for r in rounds)
    spent = sum(fj for r in rounds for (_, party, _), fj in r.energy.items() if party != SERVER)
    return Outcome(
        sum(r.end - r.start for r in rounds) / NS / len(completed) if completed else math.inf,
        moved / 1e6 / selected if selected else 0.0,
        spent / FJ / selected if spent and selected else None,
        len(rounds),
        len(completed),
        sum(len(r.members) for r in completed),
        next((r.reason for r in rounds if r.reason), "") if rounds else "no round was finished",
        waits(trace, told),
    )


def waits(trace: Trace, told: bool) -> dict[str, float]:
    """Return, by deadline, the longest time in seconds that the server had to wait.

    told: the server learns of losses, and waits for what it learns as well; otherwise only for messages, as
    nothing but a deadline ends the wait for a user who is lost."""
    found = defaultdict[str, float](float)
    for name, ns in _of_updates(trace) if trace.buffered else _of_stages(trace, told):
        found[name] = max(found[name], ns / NS)
    return dict(found)


def _of_stages(trace: Trace, told: bool) -> Iterator[tuple[str, int]]:
    """Yield each deadline of a round with the time from its setting to the next one's, or if losses are not
    `told`, to the last message that reached the server before that."""
    arrivals = sorted(
        row.arrived for row in trace if isinstance(row, Sent) and row.to == SERVER and row.arrived is not None
    )
    marks = [
        (row.at, row.name if isinstance(row, TimerSet) else "") for row in trace if isinstance(row, MARKS)
    ]
    marks.sort()
    for (since, name), (until, _) in pairwise(marks):
        last = bisect_right(arrivals, until) - 1
        heard = arrivals[last] if last >= 0 and arrivals[last] > since else since
        if name:
            yield name, (until if told else heard) - since


def _of_updates(trace: Trace) -> Iterable[tuple[str, int]]:
    since: dict[tuple[str, str], int] = {}
    for row in trace:
        if isinstance(row, TimerSet):
            since[row.about, row.phase] = row.at
    names = {(row.about, row.phase): row.name for row in trace if isinstance(row, TimerSet)}
    for row in trace:
        if isinstance(row, Sent) and row.to == SERVER and row.arrived is not None:
            key = row.about, row.phase
            if key in since:
                yield names[key], row.arrived - since[key]
