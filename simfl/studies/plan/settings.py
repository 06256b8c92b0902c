"""The settings under which a protocol keeps a fleet's promises, or why there are none.

A promise is shared out. Failure: half for more losses before the upload, or in all, than a round has room
for; a quarter for losses after it; a quarter for the protocol's own bound. Privacy: half for more colluders
in a round than T, as its users are drawn; half for the protocol's own bound. Deadlines follow from measured
waits (`waits`), and are no part of the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simfl.errors import ScenarioError
from simfl.protocols.protocol import Protocol
from simfl.runs.build import Experiment
from simfl.scenario import checks
from simfl.scenario.fleet import Fleet
from simfl.scenario.load import load
from simfl.scenario.schema import Scenario
from simfl.studies.plan.losses import Coalition, Losing, least, pdtrc

if TYPE_CHECKING:
    from simfl.studies.plan.evaluate import PlainSums

MOST_LEVELS = 2**16  # of LightSecAgg's section 7.1
FLYING = (1, 2, 4)  # times K, that are in flight
OVERS = (1.0, 1.3, 1.6, 2.0)  # times the updates that are wanted, that are chosen if that is enough


@dataclass(frozen=True)
class Promise:
    """Bounds on the probabilities that a round has no sum, and is insecure (None: nothing is hidden)."""

    fails: float
    insecure: float | None


@dataclass(frozen=True)
class Setting:
    """One way to run one protocol: a scenario with that entry alone, and what it promises."""

    name: str
    scenario: Scenario
    promise: Promise


@dataclass(frozen=True)
class Refused:
    """A protocol that keeps no promise under any setting, and the reason."""

    name: str
    why: str


@dataclass(frozen=True)
class Cohort:
    """The users of a round. selection: their scheme; D: the losses that are to be withstood; fails: the
    probability of more of them, or of too few uploads; buffer: of an asynchronous run."""

    users: int
    selection: Mapping[str, Any]
    D: int
    fails: float
    buffer: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Choices:
    """The settings of a fleet. heaviest: the most samples of a user. plainly: these users'
    plain sums."""

    fleet: Fleet
    losing: Losing
    heaviest: int
    plainly: PlainSums

    @classmethod
    def of(cls, fleet: Fleet, study: Experiment, plainly: PlainSums) -> Choices:
        """Return the settings of a fleet with these users; losses that no model tells are counted."""
        losing = Losing.of(study.scenario) or plainly.losing()
        samples = map(study.trainer.samples, range(fleet.population.users))
        return cls(fleet, losing, max(samples), plainly)

    # -- who takes part
    def cohorts(self) -> Iterator[Cohort]:
        """Yield the rounds that bring enough uploads, the smallest first."""
        fleet, losing, users = self.fleet, self.losing, self.fleet.population.users
        if fleet.updates is None:
            D = losing.at_most(users, fleet.failure / 2)
            yield Cohort(users, {"kind": "all"}, D, losing.more_than(D, users))
            return
        wanted = fleet.updates
        enough = least(users, lambda n: n >= wanted and self.too_few(n) <= fleet.failure / 2)
        if self.too_few(enough) > fleet.failure / 2:
            return
        for size in sorted({max(enough, min(users, math.ceil(wanted * over))) for over in OVERS}):
            yield self.cohort(size)

    def cohort(self, size: int) -> Cohort:
        """Return a round of so many users of whom the first uploads are enough."""
        wanted = self.fleet.updates or size
        late = self.losing.after_at_most(wanted, size, self.fleet.failure / 4)
        fails = self.too_few(size) + self.losing.after_more_than(late, wanted, size)
        return Cohort(size, _drawn(wanted, size), size - wanted + late, fails)

    def too_few(self, size: int) -> float:
        """Return the probability that a round of so many users has fewer uploads than are wanted."""
        wanted = self.fleet.updates or 0
        return self.losing.more_than(size - wanted, size, before=True)

    # -- settings
    def buffers(self, name: str) -> list[list[Setting]] | Refused:
        """Return the settings of an asynchronous entry, a list for each number of users in flight."""
        entry, why, found = self.fleet.entries[name], "", list[list[Setting]]()
        for flying in self.concurrencies():
            tried = list(self._of_cohort(name, entry, self.in_flight(flying)))
            why = why or next((one.why for one in tried if isinstance(one, Refused)), "")
            if kept := [one for one in tried if isinstance(one, Setting)]:
                found.append(kept)
        return found or Refused(name, why)

    def concurrencies(self) -> list[int]:
        """Return the numbers of users in flight that are tried."""
        users = self.fleet.population.users
        return sorted({min(users, many * self.buffer_size) for many in FLYING} | {users})

    @property
    def buffer_size(self) -> int:
        """K, the updates that are wanted, or as many as there are users who are not lost."""
        users = self.fleet.population.users
        left = users - self.losing.at_most(users, self.fleet.failure / 2)
        return self.fleet.updates or max(1, left)

    def in_flight(self, flying: int) -> Cohort:
        """Return all users, of whom so many are in flight, and D of whom are away at a time.

        Losses come at a rate of K / s updates in s seconds, which is the plain buffer's, times a user's
        chance; each is away for the same time, so those who are away are Poisson in number.
        """
        fleet = self.fleet
        buffer: dict[str, Any] = {
            "K": self.buffer_size,
            "staleness_bound": fleet.staleness_bound,
            "concurrency": flying,
        }
        buffer |= {} if fleet.return_s is None else {"return_s": fleet.return_s}
        away = self.plainly.per_second(buffer) * self.losing.mean * (fleet.return_s or 0.0)
        D = least(fleet.population.users, lambda lost: pdtrc(lost, away) <= fleet.failure / 2)
        return Cohort(fleet.population.users, {"kind": "all"}, D, pdtrc(D, away) if away else 0.0, buffer)

    def settings(self, name: str) -> list[list[Setting]] | Refused:
        """Return the settings of an entry that keep the promises, a list for each size of a round, in the
        order of the protocol's own designs; where there are none, the reason."""
        if self.fleet.entries[name].asynchronous:
            return self.buffers(name)
        entry, whys, found = self.fleet.entries[name], list[str](), list[list[Setting]]()
        for cohort in self.cohorts():
            tried = list(self._of_cohort(name, entry, cohort))
            whys += [one.why for one in tried if isinstance(one, Refused)]
            if kept := [one for one in tried if isinstance(one, Setting)]:
                found.append(kept)
        fleet = self.fleet
        few = f"{fleet.updates} updates need more than the {fleet.population.users} users there are"
        return found or Refused(name, next(iter(whys), few))

    def _of_cohort(self, name: str, entry: Protocol, cohort: Cohort) -> Iterator[Setting | Refused]:
        fleet, colluders = self.fleet, self.fleet.colluders
        hidden = entry.offline and colluders is not None
        coalition = Coalition(colluders or 0, fleet.population.users)
        T = coalition.at_most(cohort.users, 2 ** -(fleet.sigma + 1)) if entry.offline else 0
        if entry.offline and cohort.users - cohort.D <= T:
            yield Refused(name, _no_room(cohort, T))
            return
        said = fleet.world() | {"selection": cohort.selection}
        said |= {"buffer": cohort.buffer} if cohort.buffer else {}
        if entry.offline:
            said |= {"privacy": {"T": T, "D": cohort.D}, "quantization": {"levels": 1, "clip": fleet.clip}}
        own = entry.model_dump(mode="json", exclude_none=True)
        try:
            common = load({**said, "protocols": {name: own}}).of(name).common()
            for keys in entry.designs(common, fleet.sigma + 1, 2 - math.log2(fleet.failure)):
                scenario = self._levelled(load(_with(said, name, own, keys)), name)
                yield self._judged(Setting(name, scenario, Promise(cohort.fails, None)), hidden, coalition)
        except ScenarioError as error:
            yield Refused(name, error.problems[0].message)

    def _levelled(self, s: Scenario, name: str) -> Scenario:
        """Return a scenario with the most levels, a power of two, for which no sum leaves the field."""
        weights = s.protocols[name].sum_weight(s.params(name), self.heaviest)
        if s.quantization is None or weights is None:
            return s
        levels = MOST_LEVELS
        while levels > 1:
            tried = s.quantization.model_copy(update={"levels": levels})
            s = s.model_copy(update={"quantization": tried})
            if checks.overflow(s, weights) is None:
                break
            levels //= 2
        return s

    def _judged(self, setting: Setting, hidden: bool, coalition: Coalition) -> Setting | Refused:
        """Return a setting with what it promises, or why that is not enough."""
        s, name, fleet = setting.scenario, setting.name, self.fleet
        p, entry = s.params(name), s.protocols[name]
        own = entry.failure(p)
        fails = min(1.0, setting.promise.fails + own.incorrect)
        if fails > fleet.failure:
            return Refused(name, f"fails with up to {fails:.2g}, above {fleet.failure:g}")
        if not hidden:
            return Setting(name, s, Promise(fails, None))
        insecure = min(1.0, own.insecure + coalition.more_than(p.T, p.N))
        if insecure >= 1:
            who = f"{p.T} of {p.N} users collude" if p.T else "the server looks"
            return Refused(name, f"promises nothing where {who}")
        if insecure > 2**-fleet.sigma:
            bound = f"2^-{fleet.sigma:g}"
            return Refused(name, f"insecure with up to 2^{math.log2(insecure):.1f}, above {bound}")
        return Setting(name, s, Promise(fails, insecure))


def _drawn(wanted: int, size: int) -> dict[str, Any]:
    """Return the selection of so many users, of whom the first `wanted` uploads are enough."""
    drawn = {"kind": "random", "users": wanted}
    # Rounded down: the scheme chooses the ceiling of its product.
    return drawn if size == wanted else drawn | {"over": math.floor(1e6 * size / wanted) / 1e6}


def _no_room(cohort: Cohort, T: int) -> str:
    left = cohort.users - cohort.D
    return f"{cohort.D} of {cohort.users} users may be lost, which leaves {left}: not above T = {T}"


def _with(
    said: Mapping[str, Any], name: str, own: Mapping[str, Any], keys: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a scenario with the keys of a design: an entry's own, or dotted paths such as `privacy.U`."""
    made = {**said, "protocols": {name: {**own, **{k: v for k, v in keys.items() if "." not in k}}}}
    for path, value in keys.items():
        block, _, key = path.partition(".")
        if key:
            made[block] = {**made.get(block, {}), key: value}
    return made
