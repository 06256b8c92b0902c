"""Latencies with a cubic tail, as of the ABIDES simulator in which Flamingo was measured."""

from pydantic import Field

from simfl.virtual_time import nanoseconds
from simfl.world.link_models import LinkModel


class Cubic(LinkModel):
    """A floor m of each user's own, and m + (jitter / x^3)(m / unit) drawn anew every `every_s`.

    The defaults are Flamingo's: m from 10 to 100 ms, x uniform from `clip` to 1. `wake_s` is added to each
    message: half of the 0.1 s for which a client that got one sleeps before it answers.
    """

    least_s: float = Field(0.01, gt=0)
    most_s: float = Field(0.1, gt=0)
    jitter: float = Field(0.3, ge=0)
    clip: float = Field(0.05, gt=0, le=1)
    unit: float = Field(5.0, gt=0)
    every_s: float = Field(0.05, gt=0)
    wake_s: float = Field(0.05, ge=0)

    def changes(self, users, streams, purpose="link", key=""):
        every_ns = nanoseconds(self.every_s)

        def change(user, now, link):
            step = now // every_ns
            floor_s = streams.rng(purpose, "floor", user).uniform(self.least_s, self.most_s)
            x = streams.rng(purpose, "x", user, step).uniform(self.clip, 1.0)
            latency_s = floor_s + self.jitter / x**3 * floor_s / self.unit
            return link._replace(latency_s=self.wake_s + latency_s), (step + 1) * every_ns

        return change
