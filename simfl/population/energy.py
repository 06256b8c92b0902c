"""Energy of devices: the power that each part of a device draws.

Powers become whole microwatts and times are whole nanoseconds, so energy is counted in whole femtojoules
(1 J = 10^15 fJ) and adds up exactly. What each figure stands for is told in `engine.energy`. There are no
defaults: devices differ by more than ten times, so every figure is the scenario's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field

from simfl.blocks import Block, NonNegative
from simfl.virtual_time import nanoseconds

MICRO, FEMTO, MEGA = 10**6, 10**15, 10**6


def _is_counted(value: float) -> float:
    if 0 < value < 1 / MICRO:
        raise ValueError(f"must be 0 or at least 1e-06, not {value:g}: it would be counted as nothing")
    return value


Watts = Annotated[float, Field(strict=True, ge=0, le=1e6, allow_inf_nan=False), AfterValidator(_is_counted)]
JoulesPerMB = Watts


@dataclass(frozen=True, slots=True)
class Powers:
    """The power of a device in integers: microwatts, and for each byte up and down femtojoules."""

    cpu: int
    up: int = 0
    down: int = 0
    active: int = 0
    idle: int = 0
    tail: int = 0
    tail_ns: int = 0


EnergyOf = Callable[[int], Powers | None]
"""The powers of a user's device, None where its energy is not counted."""


class Radio(Block):
    """The radio of a device, such as a phone's modem. Zero is a figure too, and must be written."""

    up_j_per_mb: JoulesPerMB
    """Joules for each megabyte (10^6 bytes) sent, on top of `active_w`."""
    down_j_per_mb: JoulesPerMB
    """Joules for each megabyte received, on top of `active_w`."""
    active_w: Watts
    """Watts while anything of the user's moves on its link, in either direction."""
    tail_w: Watts
    """Watts for `tail_s` after that, unless something moves again."""
    tail_s: NonNegative
    """Seconds for which the radio stays up after its last transfer."""
    idle_w: Watts
    """Watts at all other times of the user's part in a round."""


class Energy(Block):
    """The energy that a device draws for its part; what is left out is not counted."""

    cpu_w: Watts
    """Watts of a busy core, on top of `base_w`."""
    radio: Radio | None = None
    """The radio; its energy is not counted unless given."""

    def powers(self) -> Powers:
        """Return the powers in integers."""
        radio = self.radio
        cpu = round(self.cpu_w * MICRO)
        if radio is None:
            return Powers(cpu)
        return Powers(
            cpu=cpu,
            up=round(radio.up_j_per_mb * (FEMTO // MEGA)),
            down=round(radio.down_j_per_mb * (FEMTO // MEGA)),
            active=round(radio.active_w * MICRO),
            idle=round(radio.idle_w * MICRO),
            tail=round(radio.tail_w * MICRO),
            tail_ns=nanoseconds(radio.tail_s),
        )


class ServerEnergy(Block):
    """The energy of the server's machine."""

    cpu_w: Watts
    """Watts while the server works, all of its cores together."""

    def powers(self) -> Powers:
        """Return the powers in integers."""
        return Powers(round(self.cpu_w * MICRO))
