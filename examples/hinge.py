"""Hinge weights of stale updates (Xie 2019, Asynchronous Federated Optimization, section 5.2)."""

from __future__ import annotations

from simfl.config.blocks import Natural, Positive
from simfl.protocols.staleness import Staleness


class Hinge(Staleness):
    """1 / (a (tau - b) + 1) for tau beyond b, else 1."""

    a: Positive = 10.0
    """How fast the weight falls."""
    b: Natural = 4
    """The greatest staleness that costs nothing."""

    def __call__(self, tau: int) -> float:
        return 1.0 if tau <= self.b else 1.0 / (self.a * (tau - self.b) + 1.0)
