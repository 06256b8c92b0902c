"""Latencies m + (0.3 / x^3)(m / 5), the ABIDES simulator's law in which Flamingo was measured."""

from simfl.virtual_time import nanoseconds
from simfl.world.link_models import LinkModel


class Cubic(LinkModel):
    """m is 10 to 100 ms by user, x uniform in 0.05 .. 1 anew every 50 ms; half of a wake-up a message."""

    wake_s: float = 0.1

    def changes(self, users, streams, purpose="link", key=""):
        every_ns = nanoseconds(0.05)

        def change(user, now, link):
            step = now // every_ns
            m = streams.rng(purpose, "floor", user).uniform(0.01, 0.1)
            x = streams.rng(purpose, "x", user, step).uniform(0.05, 1.0)
            latency_s = m + (0.3 / x**3) * (m / 5)
            return link._replace(latency_s=self.wake_s / 2 + latency_s), (step + 1) * every_ns

        return change
