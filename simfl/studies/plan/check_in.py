"""The phones that are checked in, that is available at a time of the night.

The server chooses among them. A phone that is not available is not chosen, and so is no loss.
"""

from __future__ import annotations

import numpy as np

from simfl.errors import refusal
from simfl.runs.build import build
from simfl.scenario.fleet import Fleet
from simfl.scenario.load import load
from simfl.scenario.user_classes import settings_of
from simfl.virtual_time import nanoseconds

TIMES = 9
"""Times of the night at which the available phones are counted, the first and the last moment included."""
COUNTED = 1_000
"""Phones that are counted at each time: the share of a larger population is known to 1.6 % of all phones."""


def checked_in(fleet: Fleet) -> Fleet:
    """Return a fleet that states how many of its phones are checked in: by its availability unless given.

    Raises:
        ScenarioError: Fewer phones are available than an aggregate needs.
    """
    if fleet.checked_in is not None:
        return fleet.model_copy(update={"checked_in": fleet.present})
    fleet = fleet.model_copy(update={"checked_in": fleet.population.users})
    # As many stand-ins as are counted, whatever an aggregate needs.
    sample = fleet.model_copy(update={"updates": None, "checked_in": min(COUNTED, fleet.present)})
    s = load({**sample.world(with_availability=True), "protocols": ["fedavg"]})
    if all(settings.availability.changes == "never" for settings in settings_of(s).values()):
        return fleet
    online = build(s).people.online
    users, night_s = range(s.population.users), 3600 * fleet.night_h
    present = np.zeros((TIMES, len(users)), bool)
    for index, at_s in enumerate(np.linspace(0, night_s, TIMES)):
        now = nanoseconds(float(at_s))
        present[index] = [online.at(user, now)[0] for user in users]
        if online.by_round is not None:
            present[index] &= online.by_round(index)
    number = round(float(present.mean()) * fleet.population.users)
    if number < fleet.needed:
        lower = f"an aggregate needs {fleet.needed}: lower updates or check_in.users"
        message = f"{number} phones are available at a time, and {lower}"
        raise refusal(fleet.name, None, message, "population.availability")
    return fleet.model_copy(update={"checked_in": number})
