"""Check-in: phones that are available report to the server, which chooses the users of a round among them.

As in deployed systems. Bonawitz et al., "Towards Federated Learning at Scale: System Design" (MLSys 2019):
eligible devices check in; a selection closes by a number of devices or by time; a device that is not needed
is sent away with the time at which to return (section 2.3, pace steering). Huba et al., "Papaya" (MLSys
2022), assigns the devices that have checked in to tasks alike.

Of a large population pace steering spreads the returns at random over time. So the model is: while a phone is
online and not at work, its next attempt comes after an exponential time with mean `every_s`. All attempts
together are then a Poisson process with rate N / `every_s`, in which each is by a phone drawn uniformly; the
attempt of an offline phone does not happen. So a phone that does not check in costs nothing, however many
there are. A fleet of millions is simulated by its attempts alone.

Not simulated: phones that check in while a round runs (they are sent away); the steering of small
populations towards a common time; a changing `every_s`.
"""

from collections.abc import Iterator

import numpy as np

from simfl.config.blocks import Block, Count, Seconds
from simfl.virtual_time import lasting


class CheckIn(Block):
    """The check-in of phones before each round, of which `selection` then chooses (MLSys 2019).

    A phone that goes offline before the choice is no loss: it is not chosen. The time of the phase is a part
    of the round's, and is shown apart.
    """

    every_s: Seconds
    """Mean seconds from one attempt of a phone to its next: the pace that the server asks for."""
    within_s: Seconds
    """Seconds after which the phase closes at the latest; with too few users for `selection` the round is
    skipped."""
    users: Count | None = None
    """Phones that have checked in and are still online, at which the phase closes; unless given, as many as
    `selection` chooses at most."""

    def attempts(self, users: int, rng: np.random.Generator) -> Iterator[tuple[int, int]]:
        """Yield the attempts of a round in order: nanoseconds since the one before, and the user.

        Args:
            users: N, the number of all users.
            rng: The stream of the round.
        """
        mean_s = self.every_s / users
        while True:
            yield lasting(rng.exponential(mean_s)), int(rng.integers(users))
