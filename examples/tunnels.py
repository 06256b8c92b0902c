"""Links of users who ride a train: in a tunnel nothing moves, and between two of them the signal changes."""

from pydantic import Field

from simfl.world.link_models import LinkStates


class Tunnels(LinkStates):
    """A tunnel of `tunnel_s` every `open_s` or so; outside, between `weakest` and all of a user's rates."""

    open_s: float = Field(60.0, gt=0)
    tunnel_s: float = Field(8.0, gt=0)
    weakest: float = Field(0.2, ge=0, le=1)

    def states(self, user, rng):
        while True:
            for _ in range(1 + rng.poisson(3)):
                signal = rng.uniform(self.weakest, 1.0)
                yield max(0.1, rng.exponential(self.open_s / 4)), signal, signal
            yield self.tunnel_s, 0.0, 0.0
