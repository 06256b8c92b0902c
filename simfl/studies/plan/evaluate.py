"""One setting run in shadow under the modelled clock: seconds, bytes and joules of its aggregates.

The users, their data and the model are made once for each seed, and every setting meets them.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace

from simfl.engine.driver import drive
from simfl.engine.setup import ClosedRound
from simfl.experiment.build import Experiment, build, modelled
from simfl.experiment.people import People
from simfl.results import metrics
from simfl.results.energy import FJ
from simfl.results.trace import SERVER, End, Sent, TimerSet, Trace, seldom_collecting
from simfl.scenario.fleet import Fleet
from simfl.scenario.load import load
from simfl.studies.plan.settings import Setting
from simfl.virtual_time import NS


@dataclass(frozen=True)
class Outcome:
    """A setting's run under one seed. seconds: per aggregate, infinite without any; user_mb: up and down, of a
    user in a round; user_j: the same in joules; why: the first failure's reason; waits: by deadline, the
    longest time that the server had to wait for a message."""

    seconds: float
    user_mb: float
    user_j: float | None
    rounds: int
    completed: int
    why: str
    waits: Mapping[str, float]


@dataclass(frozen=True)
class World:
    """The users of a fleet under one seed, ready for any setting. longer: times that updates are as long as
    the model says."""

    study: Experiment
    longer: float = 1.0

    @classmethod
    def of(cls, fleet: Fleet, seed: int) -> "World":
        return cls(build(load({**fleet.world(), "protocols": ["fedavg"]}, {"seed": seed})))

    def changed(self, fleet: Fleet, longer: float = 1.0) -> "World":
        """Return the world of a fleet with other devices, links or losses, and the same data."""
        s = load({**fleet.world(), "protocols": ["fedavg"]}, {"seed": self.study.scenario.seed})
        people = People.of(s, self.study.streams, _nobody_asks)
        return World(replace(self.study, scenario=s, people=people), longer)

    def run(self, setting: Setting, rounds: int) -> Outcome:
        """Run a setting so many rounds in this world."""
        seed = self.study.scenario.seed
        s = setting.scenario.model_copy(update={"seed": seed, "rounds": rounds})
        trainer = copy(self.study.trainer)
        trainer.d = max(1, round(self.longer * trainer.d))
        study = replace(self.study, scenario=s, trainers={setting.name: trainer})
        session = study.session(setting.name, modelled(study))

        async def publish(outcome: ClosedRound) -> None:
            """Drop the round: its rows are in the trace."""

        with seldom_collecting():
            asyncio.run(drive(session, publish, lambda: None))
            return outcome_of(session.trace)


def _nobody_asks() -> "NDArray[np.int64]":
    raise NotImplementedError


def outcome_of(trace: Trace) -> Outcome:
    """Return what a trace says of its aggregates."""
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
        next((r.reason for r in rounds if r.reason), "") if rounds else "no round was finished",
        waits(trace),
    )


def waits(trace: Trace) -> dict[str, float]:
    """Return, by deadline, the seconds from its setting to the last message that reached the server before
    the next one was set, the longest of all rounds; in an asynchronous run, to that of the same update."""
    found = defaultdict[str, float](float)
    if trace.buffered:
        pairs = _of_updates(trace)
    else:
        pairs = _of_stages(trace)
    for name, ns in pairs:
        found[name] = max(found[name], ns / NS)
    return dict(found)


def _of_stages(trace: Trace) -> Iterator[tuple[str, int]]:
    arrivals: list[int] = []
    marks: list[tuple[int, str]] = []
    for row in trace:
        if isinstance(row, Sent) and row.to == SERVER and row.arrived is not None:
            arrivals.append(row.arrived)
        elif isinstance(row, TimerSet):
            marks.append((row.at, row.name))
        elif isinstance(row, End):
            marks.append((row.at, ""))
    arrivals.sort()
    marks.sort()
    at = 0
    for (since, name), (until, _) in zip(marks, marks[1:], strict=False):
        last = since
        while at < len(arrivals) and arrivals[at] <= until:
            last = max(last, arrivals[at])
            at += 1
        if name:
            yield name, last - since


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
