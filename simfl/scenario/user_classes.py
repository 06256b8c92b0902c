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
    """The settings of a class of users: its own, or the scenario's."""

    network: UserLink
    """Link of each user."""
    devices: Devices
    """Speed of the devices."""
    availability: Availability
    """Times at which its users are online."""
    dropout: Dropout
    """Losses within a round."""
    energy: Energy | None
    """Energy of the devices; None if it is not counted."""


def settings_of(s: Scenario) -> dict[str, UserSettings]:
    """Return the settings of each class; a scenario without classes has one, DEFAULT_CLASS."""
    population = s.population
    return {
        name: UserSettings(
            # A block is always true, so `or` asks for None only.
            kind.network or s.network.users,
            kind.devices or population.devices,
            kind.availability or population.availability,
            kind.dropout or s.dropout,
            kind.energy or population.energy,
        )
        for name, kind in _listed(s).items()
    }


def key_of(s: Scenario, name: str, block: str) -> str:
    """Return the dotted key from which a class has one of its settings."""
    kind = (s.population.classes or {}).get(name)
    if kind is not None and getattr(kind, block) is not None:
        return f"population.classes.{name}.{block}"
    # In step with `settings_of`: the place at which it finds each block of the scenario.
    return {"network": "network.users", "dropout": "dropout"}.get(block, f"population.{block}")


def classes_of(s: Scenario) -> Classes:
    """Return the class of each user, as the scenario's seed draws it."""
    shares = {name: own.share for name, own in _listed(s).items()}
    return Classes.drawn(shares, s.population.users, Streams(s.seed))


def _listed(s: Scenario) -> dict[str, UserClass]:
    return s.population.classes or {DEFAULT_CLASS: UserClass(share=1.0)}
