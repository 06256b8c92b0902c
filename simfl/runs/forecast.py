"""The time and memory of a run of many users, foretold from its scenario alone, before anything is built.

The cost of a run besides the work that it executes is its trace's: each row is an event of the engine. A
member of a round has about as many rows under every protocol that masks, and a third of them without.
"""

from dataclasses import dataclass

from simfl.scenario.checks import data_bytes, users_bytes
from simfl.scenario.schema import Scenario

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
