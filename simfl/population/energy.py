"""Energy and batteries of devices: the power that each part of a device draws, and the charge it draws on.

Powers become whole microwatts and times are whole nanoseconds, so energy is counted in whole femtojoules
(1 J = 10^15 fJ) and adds up exactly. The meaning of each figure is told in `engine.energy`. There are no
defaults: devices differ by more than ten times, so every figure is the scenario's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field

from simfl.blocks import Block, Distribution, Fraction, Positive, SecondsOrZero
from simfl.population.availability import FOR_EVER, AnyAvailability, ByData, Days
from simfl.quantities import unit
from simfl.random_streams import Streams
from simfl.virtual_time import nanoseconds

MICRO, FEMTO = 10**6, 10**15
PER_BYTE = FEMTO // 10**6
STANDBY_S = 1  # the least time for which a device that comes back must last, or it would come and go for ever


def _is_counted(value: float) -> float:
    if 0 < value < 1 / MICRO:
        raise ValueError(f"must be 0 or at least 1e-06, not {value:g}: it would be counted as nothing")
    return value


def _is_within(level: Distribution) -> Distribution:
    if (mean := level.average()) > 1:
        raise ValueError(f"a mean of {mean:g} must not be above 1, a full battery")
    return level


Watts = Annotated[float, Field(strict=True, ge=0, le=1e6, allow_inf_nan=False), AfterValidator(_is_counted)]
JoulesPerMB = Watts


@dataclass(frozen=True, slots=True)
class Store:
    """A battery in integers: femtojoules of capacity and of the level at which a device comes back;
    microwatts of standby and of the charger. start: a user's first level; plugged: its times at the charger.
    """

    capacity: int
    back: int
    base: int
    charger: int
    start: Callable[[int], int]
    plugged: Days


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
    store: Store | None = None


EnergyOf = Callable[[int], Powers | None]
"""The powers of a user's device, None where its energy is not counted."""


class Radio(Block):
    """The radio of a device, such as a phone's modem. Zero is a figure too, and must be written.

    Its form is that of Huang et al. (MobiSys 2012): while it is active, a base power and a slope for the rate
    in each direction; then a tail. A slope in mW per Mbit/s is 0.008 times as many joules for a megabyte.
    """

    up_j_per_mb: JoulesPerMB
    """Joules for each megabyte (10^6 bytes) sent, on top of `active_w`."""
    down_j_per_mb: JoulesPerMB
    """Joules for each megabyte received, on top of `active_w`."""
    active_w: Watts
    """Watts while anything of the user's moves on its link, in either direction."""
    tail_w: Watts
    """Watts for `tail_s` after that, unless something moves again."""
    tail_s: SecondsOrZero
    """Seconds for which the radio stays up after its last transfer."""
    idle_w: Watts
    """Watts at all other times of the user's part in a round."""


class Battery(Block):
    """The battery of a device. A device that runs empty is lost there and then.

    Nobody follows the battery of a device that does nothing: its level is found when somebody looks.
    """

    capacity_j: Annotated[Positive, unit("J")]
    """Joules of a full battery: milliampere-hours x 3.6 x volts."""
    level: Annotated[Distribution, AfterValidator(_is_within)]
    """The fraction of it at the start, drawn once for each user; draws above 1 are a full battery."""
    base_w: Watts
    """Watts that the device draws at all times until it is empty, whatever else it does."""
    charger_w: Watts
    """Watts that the charger gives while the device is plugged in and not full."""
    charging: AnyAvailability
    """The times at which the device is plugged in, by a model of availability with draws of its own."""
    comes_back_at: Annotated[Fraction, Field(gt=0)]
    """The fraction of a full battery at which a device that ran empty comes back."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield what does not fit together, as (key, message)."""
        if self.charging.changes == "by round":
            yield "charging.slot_s", "missing; a battery has no rounds to draw p in"
        elif isinstance(self.charging, ByData):
            yield "charging", "by_data is for availability: a charger has nothing to do with what users hold"
        needed_j, charge_j = self.base_w * STANDBY_S, self.capacity_j * self.comes_back_at
        if charge_j < needed_j:
            lasting = f"{charge_j:g} J, less than base_w={self.base_w:g} draws in {STANDBY_S} s"
            yield "comes_back_at", f"{self.comes_back_at:g} of capacity_j={self.capacity_j:g} is {lasting}"

    def store(self, users: int, streams: Streams) -> Store:
        """Return the battery for so many users."""
        capacity = round(self.capacity_j * FEMTO)
        draws = streams.uniforms("battery", "level")
        # The model's draws are named by availability: from a seed of its own they are others than those of
        # the users' coming and going.
        own = Streams(int.from_bytes(streams.bytes("battery", "charging"), "big"))
        charger = round(self.charger_w * MICRO)
        return Store(
            capacity=capacity,
            back=max(1, round(self.comes_back_at * capacity)),
            base=round(self.base_w * MICRO),
            charger=charger,
            start=lambda user: min(capacity, round(self.level.quantile(draws(user, 0)) * capacity)),
            plugged=self.charging.times(users, own).at if charger else lambda user, now: (False, FOR_EVER),
        )


class Energy(Block):
    """The energy that a device draws for its part; what is left out is not counted."""

    cpu_w: Watts
    """Watts of a busy core, on top of `base_w`."""
    radio: Radio | None = None
    """The radio; its energy is not counted unless given."""
    battery: Battery | None = None
    """The battery; a device without one never runs empty."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield what does not fit together, as (key, message)."""
        for key, message in self.battery.problems() if self.battery else ():
            yield f"battery.{key}", message

    def powers(self, users: int, streams: Streams) -> Powers:
        """Return the powers in integers, for so many users."""
        radio, store = self.radio, self.battery.store(users, streams) if self.battery else None
        cpu = round(self.cpu_w * MICRO)
        if radio is None:
            return Powers(cpu, store=store)
        return Powers(
            cpu=cpu,
            up=round(radio.up_j_per_mb * PER_BYTE),
            down=round(radio.down_j_per_mb * PER_BYTE),
            active=round(radio.active_w * MICRO),
            idle=round(radio.idle_w * MICRO),
            tail=round(radio.tail_w * MICRO),
            tail_ns=nanoseconds(radio.tail_s),
            store=store,
        )


class ServerEnergy(Block):
    """The energy of the server's machine."""

    cpu_w: Watts
    """Watts while the server works, all of its cores together."""

    def powers(self) -> Powers:
        """Return the powers in integers."""
        return Powers(round(self.cpu_w * MICRO))
