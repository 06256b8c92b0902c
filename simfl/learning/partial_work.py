"""Training that ends at a deadline: a user uploads the minibatch steps that it had the time for.

Slow users do less instead of being late, as in FedProx (Li et al. 2020: variable amounts of local work) and
in TimelyFL (Zhang et al. 2023, of which the choice of layers is not here). The rest of the minibatches is not
computed: the training itself is cut, and not only its duration.

Of weights: under secure aggregation the server learns sum_u n_u Delta_u and sum_u n_u, and nothing of one
user. So what depends on a user's own steps tau_u has to be done by the user before it masks, and it can be:
n_u (`steps`) and the length of Delta_u (`normalised`) are its own to choose. FedNova divides Delta_u by tau_u
and multiplies the sum by tau_eff (Wang et al. 2020, section 4); its tau_eff, the weighted mean of all tau_u,
is known to nobody beforehand. But it acts as a server's step size, which is free. So here it is a constant of
the scenario that is announced to all. Too low a constant makes training slow; too high a one pushes updates
of few steps beyond the quantiser's clip, where they are held back, and counted as clipped.
"""

from typing import Literal, Self

from pydantic import model_validator

from simfl.config.blocks import Block, Count, Seconds


class PartialWork(Block):
    """A deadline of local training, and the weight of an update that was cut: as FedProx, or FedNova.

    >>> PartialWork(within_s=5.0, weight="steps").samples(n=50, steps=3, whole=10)
    15
    >>> PartialWork(within_s=5.0, weight="normalised", tau=12).factor(steps=3)
    4.0
    """

    within_s: Seconds
    """Seconds that a user has for training; it does the minibatches that fit into them, and at least one."""
    weight: Literal["samples", "steps", "normalised"] = "samples"
    """By n_u (`samples`), the share of it that was done (`steps`), or n_u of the update x tau / steps."""
    tau: Count | None = None
    """FedNova's tau_eff: the steps that each update stands for once it is `normalised`."""

    @model_validator(mode="after")
    def has_tau(self) -> Self:
        if (self.weight == "normalised") != (self.tau is not None):
            raise ValueError("weight normalised needs tau, and no other weight has it")
        return self

    def samples(self, n: int, steps: int, whole: int) -> int:
        """Return the weight of an update of so many steps of the `whole`, of n samples; never above n."""
        return -(-n * steps // whole) if self.weight == "steps" and whole else n

    def factor(self, steps: int) -> float | None:
        """Return the factor on an update of so many steps; None if it stays as it is."""
        return None if self.tau is None or not steps else self.tau / steps
