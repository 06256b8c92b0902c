"""The settings of each class of users in a scenario, and the class of each user."""

from __future__ import annotations

from typing import NamedTuple

from simfl.random_streams import Streams
from simfl.scenario.schema import Scenario
from simfl.scenario.world import Devices, UserClass, UserLink
from simfl.world.availability import Availability
from simfl.world.classes import DEFAULT_CLASS, Classes
from simfl.world.dropout import Dropout
from simfl.world.energy import Energy


class UserSettings(NamedTuple):
    """The settings of a class of users."""

    network: UserLink
    devices: Devices
    availability: Availability
    dropout: Dropout
    energy: Energy | None


def settings_of(s: Scenario) -> dict[str, UserSettings]:
    """Return the settings of each class; of one that is called DEFAULT_CLASS where a scenario has none."""
    people = s.population
    return {
        name: UserSettings(
            own.network or s.network.users,
            own.devices or people.devices,
            own.availability or people.availability,
            own.dropout or s.dropout,
            own.energy or people.energy,
        )
        for name, own in _listed(s).items()
    }


def key_of(s: Scenario, name: str, block: str) -> str:
    """Return the key of the scenario from which a class has one of its settings."""
    own = (s.population.classes or {}).get(name)
    if own is not None and getattr(own, block) is not None:
        return f"population.classes.{name}.{block}"
    return {"network": "network.users", "dropout": "dropout"}.get(block, f"population.{block}")


def classes_of(s: Scenario) -> Classes:
    """Return the class of each user, as the scenario's seed draws it."""
    shares = {name: own.share for name, own in _listed(s).items()}
    return Classes.drawn(shares, s.population.users, Streams(s.seed))


def _listed(s: Scenario) -> dict[str, UserClass]:
    return s.population.classes or {DEFAULT_CLASS: UserClass(share=1.0)}
