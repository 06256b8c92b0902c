"""The users of a scenario: the settings, links and losses of each, by its class."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from simfl.config.blocks import GREATEST, GREATEST_MBPS, LEAST, LEAST_MBPS, clip_to_bounds
from simfl.errors import counted
from simfl.random_streams import Streams
from simfl.scenario.messages import error, with_location
from simfl.scenario.schema import Scenario
from simfl.scenario.user_classes import UserSettings, classes_of, key_of, settings_of
from simfl.scenario.world import UserLink
from simfl.world.availability import Holdings, OnlineTimes
from simfl.world.classes import Classes, LossesByClass, online_times
from simfl.world.dropout import Losses
from simfl.world.energy import EnergyOf, Powers
from simfl.world.link_models import LinkParams
from simfl.world.links import Links, ServerLink, server_link, user_links
from simfl.world.numbers import for_users
from simfl.world.outages import Outages
from simfl.world.state_generators import StateGenerator
from simfl.world.tcp import Tcp


@dataclass(frozen=True)
class UserPopulation:
    """All users of a run."""

    classes: Classes
    settings: tuple[UserSettings, ...]
    """Settings of each class, in the order of `classes.names`."""
    streams: Streams
    slowdown: NDArray[np.float64]
    """Factor on the time of each user's work, [users]."""
    online: OnlineTimes
    up_mbps: NDArray[np.float64]
    """Uplink rates, [users]; before outages and link models, as the two below."""
    down_mbps: NDArray[np.float64]
    """Downlink rates, [users]."""
    latency_s: NDArray[np.float64]
    """One-way latencies, [users]."""
    powers: tuple[Powers | None, ...]
    """Powers of each class's devices; None where a class counts no energy."""
    links: Links
    """State of a user's link at a time."""
    server_link: ServerLink
    outages: Outages

    @classmethod
    def of(cls, s: Scenario, streams: Streams, holdings: Holdings) -> UserPopulation:
        """Return the users of a scenario; a ScenarioError if a file of theirs is wrong, or too few come."""
        classes, settings = classes_of(s), tuple(settings_of(s).values())
        for key, model, purpose, user in _models(s, classes):
            if isinstance(model, StateGenerator):
                with_location(s, key, partial(model.try_out, user, streams, purpose))
        own = partial(_numbers, s, streams, classes)
        slowdown, online = own("devices", "slowdown", ("devices",)), _online(s, streams, classes, holdings)
        up_mbps = own("network", "uplink_mbps", ("links", "uplink"), LEAST_MBPS, GREATEST_MBPS)
        down_mbps = own("network", "downlink_mbps", ("links", "downlink"), LEAST_MBPS, GREATEST_MBPS)
        latency_s = own("network", "latency_s", ("links", "latency"), 0)
        outages = Outages(s.network.outages, streams, classes.of)
        return cls(
            classes,
            settings,
            streams,
            slowdown,
            replace(online, at=outages.online(online.at)),
            up_mbps,
            down_mbps,
            latency_s,
            tuple(_powers(s, streams)),
            _links(s, streams, classes, (up_mbps, down_mbps, latency_s), outages),
            _server_link(s, streams),
            outages,
        )

    @property
    def cores(self) -> NDArray[np.int64]:
        """The cores of each user's device, [users]."""
        return np.array([own.devices.cores for own in self.settings])[self.classes.member]

    @property
    def has_churn(self) -> bool:
        """True if some users go offline and return while the run lasts."""
        by_class = any(own.availability.changes == "with time" for own in self.settings)
        return by_class or self.outages.take_offline

    @property
    def energy_of(self) -> EnergyOf | None:
        """The powers of each user's device; None where no energy is counted."""
        return (lambda user: self.powers[self.classes.member[user]]) if any(self.powers) else None

    @property
    def batteries(self) -> bool:
        """True if any device has a battery."""
        return any(own is not None and own.store is not None for own in self.powers)

    def losses(self, s: Scenario, points: Sequence[str]) -> Losses | LossesByClass:
        """Return the losses that a scenario with these users asks for, at the points that a protocol has."""
        users = len(self.classes.member)
        each = [Losses(own.dropout, users, self.streams, points) for own in settings_of(s).values()]
        return each[0] if len(each) == 1 else LossesByClass(tuple(each), self.classes.member)

    def noise(self) -> Callable[[int, int | str], float] | None:
        """Return a draw of the factor on a training's time, by user and round; None if nobody's varies."""
        sigma = [own.devices.training_noise for own in self.settings]
        if not any(sigma):
            return None

        def draw(user: int, which: int | str) -> float:
            normal = self.streams.rng("training noise", user, which).standard_normal()
            return float(clip_to_bounds(np.exp(sigma[self.classes.member[user]] * normal)))

        return draw

    def jitter(self) -> Callable[[int, bool], Iterator[float] | None] | None:
        """Return what a user's messages take longer in one direction, in seconds; None if nobody's do."""
        models = [own.network.jitter_s for own in self.settings]
        if not any(models):
            return None

        def draws(user: int, up: bool) -> Iterator[float] | None:
            model = models[self.classes.member[user]]
            if model is None:
                return None
            rng = self.streams.rng("jitter", user, "up" if up else "down")
            return (float(model.draw(rng, 1)[0]) for _ in iter(int, 1))

        return draws

    def tcp(self, user: int) -> Tcp | None:
        """Return the TCP of a user's connections, where it counts."""
        link: UserLink = self.settings[self.classes.member[user]].network
        return link.tcp


def _models(s: Scenario, classes: Classes) -> Iterator[tuple[str, object, str, int]]:
    """Yield each model of the users' lives: its key, the model, its streams' purpose, and a user of it."""
    yield "network.server.varies", s.network.server.varies, "server link", 0
    for index, (name, own) in enumerate(settings_of(s).items()):
        members = np.flatnonzero(classes.member == index)
        if not members.size:
            continue
        key, user = partial(key_of, s, name), int(members[0])
        yield key("availability"), own.availability, "availability", user
        yield f"{key('network')}.varies", own.network.varies, "link", user
        if own.energy is not None and (battery := own.energy.battery) is not None:
            yield f"{key('energy')}.battery", battery, "battery", user
            yield f"{key('energy')}.battery.charging", getattr(battery, "charging", None), "charging", user


def _numbers(
    s: Scenario,
    streams: Streams,
    classes: Classes,
    block: str,
    key: str,
    purpose: tuple[str, ...],
    least: float = LEAST,
    greatest: float = GREATEST,
) -> NDArray[np.float64]:
    """Return a number of each user, [users], as its class's block says.

    One stream for all classes: a user in a class that is like another has the number that it had there."""
    drawn = []
    for name, settings in settings_of(s).items():
        spec, path = getattr(getattr(settings, block), key), f"{key_of(s, name, block)}.{key}"
        users, bounds = s.population.users, {"least": least, "greatest": greatest}
        make = partial(for_users, spec, users, streams, *purpose, key=path, **bounds)
        drawn.append(with_location(s, path, make))
    return classes.combined(drawn)


def _links(
    s: Scenario,
    streams: Streams,
    classes: Classes,
    numbers: tuple[NDArray[np.float64], ...],
    outages: Outages,
) -> Links:
    """Return the state of each user's link at any time. numbers: up, down and latency, each [users]."""
    up_mbps, down_mbps, latency_s = numbers
    models = {
        name: (own.network.varies, f"{key_of(s, name, 'network')}.varies")
        for name, own in settings_of(s).items()
    }

    def own(user: int) -> LinkParams:
        return LinkParams(up_mbps.item(user), down_mbps.item(user), latency_s.item(user))

    make = partial(user_links, own, models, outages, streams, s.population.users, classes.of)
    links: Links = with_location(s, "network.users.varies", make)
    return links


def _server_link(s: Scenario, streams: Streams) -> ServerLink:
    own = s.network.server
    link = LinkParams(own.uplink_mbps, own.downlink_mbps, 0.0)
    make = partial(server_link, link, own.varies, streams)
    state_at: ServerLink = with_location(s, "network.server.varies", make)
    return state_at


def _powers(s: Scenario, streams: Streams) -> Iterator[Powers | None]:
    """Yield the powers of each class's devices."""
    for name, own in settings_of(s).items():
        make = None if own.energy is None else partial(own.energy.powers, s.population.users, streams)
        key = f"{key_of(s, name, 'energy')}.battery.charging"  # all that a file may be wrong of
        yield None if make is None else with_location(s, key, make)


def _online(s: Scenario, streams: Streams, classes: Classes, holdings: Holdings) -> OnlineTimes:
    """Return the times at which users are online; refuse an asynchronous run to which too few ever come."""
    users = s.population.users
    models = {name: own.availability for name, own in settings_of(s).items()}
    made = [
        with_location(s, key_of(s, name, "availability"), partial(model.times_of, users, streams, holdings))
        for name, model in models.items()
    ]
    online = online_times(classes, made, [model.changes == "with time" for model in models.values()])
    if s.buffer is None:
        return online
    ever = users if online.ever_online is None else int(online.ever_online.sum())
    for name, protocol in s.protocols.items():
        needed = {"buffer.K": s.buffer.K}
        if protocol.offline:
            needed["privacy.U"] = s.params(name, 0).U
        for bound, least in needed.items():
            if ever < least:
                few = f"{ever} of {counted(users, 'user')} are ever online"
                raise error(s, "population.availability", f"{few}, but protocol {name} needs {bound}={least}")
    return online
