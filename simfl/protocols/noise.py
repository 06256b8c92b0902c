"""Differential privacy of the sum: what a scenario's block `dp` says, and the numbers that follow from it.

Each user clips, rotates and rounds its update, and adds its part of the noise (`crypto/noisy_rounding.py`).
Secure aggregation then shows the sum alone, whose noise has the variance (noise_multiplier clip)^2 in squared
units of an update: the noise that a trusted server would add. All users weigh the same.

`bits` are of the noisy sum: a coordinate of it is within 2^bits with probability 1 - `modclip`. The sum is
taken modulo the field's q, which is at least 2^bits, so it wraps around at q and not at 2^bits.
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field

from simfl.config.blocks import Block, Positive, shorthand
from simfl.config.quantities import unit
from simfl.crypto import discrete_noise, rotation
from simfl.crypto.noisy_rounding import Lattice, norm_bound, scale_of

Problems = Iterator[tuple[str, str]]
Share = Annotated[float, Field(strict=True, ge=0, lt=1, allow_inf_nan=False), unit("1")]
Probability = Annotated[float, Field(strict=True, ge=1e-30, lt=1, allow_inf_nan=False), unit("1")]


class Nothing(Block):
    """Users' parts add up to the promised noise if none is lost; each lost user takes its part away."""

    kind: Literal["nothing"] = "nothing"

    def enough(self, users: int) -> int:
        """Return the number of survivors whose parts are the promised noise."""
        return users


class WorstCase(Block):
    """Users' parts add up to the promised noise for the fewest survivors; more survivors, more noise."""

    kind: Literal["worst_case"] = "worst_case"
    tolerate: Share
    """Share of a round's users that may be lost."""

    def enough(self, users: int) -> int:
        """Return the number of survivors whose parts are the promised noise.

        >>> WorstCase(tolerate=0.3).enough(10)
        7
        """
        # At least one: a share just below 1 of few users would be all of them.
        return max(1, users - math.floor(self.tolerate * users))


NoiseDropout = Annotated[Nothing | WorstCase, Field(discriminator="kind"), shorthand(worst_case="tolerate")]


class DifferentialPrivacy(Block):
    """Noise in the sum of a round's updates, beside secure aggregation and not instead of it."""

    mechanism: Literal["gaussian", "discrete_gaussian", "skellam"]
    """`skellam` and `discrete_gaussian`: each user adds its part; `gaussian`: the server alone adds a
    discrete Gaussian to the sum, as a trusted server would, for reference."""
    clip: Positive
    """Bound of an update's length (L2)."""
    noise_multiplier: Positive
    """Standard deviation of the noise in the sum, in clips."""
    bits: Annotated[int, Field(strict=True, ge=2, le=31)]
    """Bits of the noisy sum, which set the fineness of the rounding."""
    rotation: Literal["hadamard", "none"] = "hadamard"
    """`hadamard` flattens updates, which needs fewer bits, and pads them to a power of two."""
    dropout: NoiseDropout = Nothing()
    """The treatment of users that are lost, and their noise with them."""
    modclip: Probability = 1e-4
    """The noisy sum of a coordinate leaves 2^bits with about this probability."""
    beta: Probability = math.exp(-0.5)
    """A rounding is longer than its bound with at most this probability, and is then repeated."""

    @property
    def central(self) -> bool:
        """True if the server adds the noise."""
        return self.mechanism == "gaussian"

    def lattice(self, d: int, users: int, seed: bytes) -> Lattice:
        """Return the numbers of a round of `users` with updates of length d.

        Args:
            d: Length of an update.
            users: Most users of the round.
            seed: Public seed of the rotation, 32 bytes; unused without a rotation.

        Raises:
            ValueError: Too few bits.
        """
        return _lattice(self, d, users, seed if self.rotation == "hadamard" else b"")

    def problems(self, users: int, q: int) -> Problems:
        """Yield each problem of the block, as (key, message), for rounds of `users` over F_q."""
        if 2**self.bits > q:
            yield "bits", f"2^{self.bits} = {2**self.bits} must not be above field.q={q}: use fewer bits"
        try:
            # The longest model has the finest lattice, and so the widest noise in steps.
            how = self.lattice(2**40, users, bytes(32))
        except ValueError as problem:
            yield "bits", str(problem)
            return
        variance = max(how.variances, default=how.server_variance)
        if variance > discrete_noise.LARGEST_VARIANCE:
            deviation, most = math.sqrt(variance), math.sqrt(discrete_noise.LARGEST_VARIANCE)
            fewer = self.bits - math.ceil(math.log2(deviation / most))
            reason = f"noise of standard deviation {deviation:,.0f} steps is above {most:,.0f}, the largest"
            yield "bits", f"{reason} that is drawn exactly: use at most {fewer} bits"

    def too_coarse(self, d: int, users: int) -> Problems:
        """Yield a problem, as (key, message), if rounding could double the norm of an update of length d."""
        how = self.lattice(d, users, bytes(32))
        steps = self.clip * how.scale
        if how.bound > (2 * steps) ** 2:
            least = next(
                (bits for bits in range(self.bits + 1, 32) if not [*_with(self, bits).too_coarse(d, users)]),
                32,
            )
            longer = math.sqrt(how.bound) / how.scale
            reason = f"rounding {how.length:,} numbers may make an update {longer:.3g} long, above 2 clips"
            remedy = f"at least {least} bits" if least < 32 else "a smaller model"
            yield "bits", f"{reason} = {2 * self.clip:g}: use {remedy}"


def _with(dp: DifferentialPrivacy, bits: int) -> DifferentialPrivacy:
    return dp.model_copy(update={"bits": bits})


@lru_cache(maxsize=64)
def _lattice(dp: DifferentialPrivacy, d: int, users: int, seed: bytes) -> Lattice:
    length = rotation.padded(d) if seed else d
    variance, parts = (dp.noise_multiplier * dp.clip) ** 2, dp.dropout.enough(users)
    # exp(-k^2 / 2) bounds the tail of a sub-Gaussian beyond k deviations: 4.29 for 10^-4, 3 for exp(-4.5).
    k = math.sqrt(2 * math.log(1 / dp.modclip))
    # If no user is lost: then there is most noise.
    present = variance if dp.central else variance * users / parts
    scale = scale_of(dp.clip, present, users, length, dp.bits, k, bool(seed))
    bound = norm_bound(dp.clip, scale, length, dp.beta)
    law, whole = "discrete_gaussian" if dp.central else dp.mechanism, variance * scale**2
    own, server = ((), whole) if dp.central else ((whole / parts,), 0.0)
    return Lattice(d, dp.clip, scale, bound, law, own, server, seed)
