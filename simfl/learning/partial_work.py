"""Training that ends at a deadline: a user uploads the minibatch steps that it had time for.

Slow users train less instead of missing the deadline, as in FedProx (Li et al. 2020: variable amounts of
local work) and in TimelyFL (Zhang et al. 2023, without its choice of layers). The remaining minibatches are
not computed: the training itself ends, and not only its duration.

Weights: under secure aggregation the server gets sum_u n_u Delta_u and sum_u n_u, and no figure of one user.
So a factor that depends on a user's steps tau_u must be applied by the user before it masks: to n_u
(`steps`), or to the length of Delta_u (`normalised`). FedNova divides Delta_u by tau_u and multiplies the sum
by tau_eff (Wang et al. 2020, section 4). Its tau_eff, the weighted mean of all tau_u, is not known in
advance. But it acts as a server's step size, which is free. So here it is a constant of the scenario that all
users know. A low constant makes training slow. A high one moves updates of few steps beyond the quantiser's
clip, where they are clipped, and counted as such.
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
    """Seconds that a user has for training; it computes the minibatches that fit into them, and at least
    one."""
    weight: Literal["samples", "steps", "normalised"] = "samples"
    """Weight of an update: n_u (`samples`); its share that was done (`steps`); or n_u, with the update x tau
    / steps."""
    tau: Count | None = None
    """FedNova's tau_eff: the steps that each update stands for once it is `normalised`."""

    @model_validator(mode="after")
    def has_tau(self) -> Self:
        if (self.weight == "normalised") != (self.tau is not None):
            raise ValueError("weight normalised needs tau, and no other weight has it")
        return self

    def samples(self, n: int, steps: int, whole: int) -> int:
        """Return the weight of an update, at most n.

        Args:
            n: The user's samples.
            steps: Minibatches that were done.
            whole: Minibatches of a full training.
        """
        # Rounded up, so that an update of at least one step has a weight.
        return -(-n * steps // whole) if self.weight == "steps" and whole else n

    def factor(self, steps: int) -> float | None:
        """Return the factor on an update of `steps` minibatches; None if it stays unchanged."""
        return None if self.tau is None or not steps else self.tau / steps
