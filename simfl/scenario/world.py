"""The world of a study: clocks, users with their devices and availability, network and server."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from simfl.blocks import (
    Block,
    Count,
    Distribution,
    Mbps,
    NonNegative,
    Positive,
    Spread,
    Text,
    shorthand,
)
from simfl.population.availability import Always, AnyAvailability

PRESETS_MBPS = {"4g": 98.0, "lan320": 320.0, "5g": 802.0}
"""User links of LightSecAgg section 7.2 and Table 3, both directions, Mbit/s."""


# --- clocks -------------------------------------------------------------------------------------
class Measured(Block):
    """CPU seconds that each step really took on this machine, times the device's slowdown."""

    kind: Literal["measured"] = "measured"


class Modelled(Block):
    """Counted work times the seconds per operation of a device profile; fully deterministic."""

    kind: Literal["modelled"] = "modelled"


class Recorded(Block):
    """The durations of an earlier run, read from the trace in its folder."""

    kind: Literal["recorded"] = "recorded"
    dir: Text
    """The folder of a run, from the working directory."""


Clock = Annotated[Measured | Modelled | Recorded, Field(discriminator="kind"), shorthand(recorded="dir")]


# --- users --------------------------------------------------------------------------------------
class Devices(Block):
    """Users' devices: `slowdown` is against the machine of the clock, drawn once per user.

    Each local training takes `training_noise` times as long, drawn anew from the user's own stream:
    log-normal with median 1 and this standard deviation of the logarithm.
    """

    slowdown: Distribution
    """Against the machine of the clock, drawn once per user."""
    cores: Count = 2
    """With one, the protocol and the training take turns."""
    training_noise: Spread = 0.0
    """Spread of each training's time: the standard deviation of its logarithm."""


class Population(Block):
    """Who takes part: N users with their devices and availability."""

    users: Count
    """N, the number of users."""
    devices: Devices
    """How fast they are."""
    availability: AnyAvailability = Always()
    """When they are online."""


# --- network and server -------------------------------------------------------------------------
class UserLink(Block):
    """A user's link. A preset gives both rates; the latency (one way, seconds) is always stated.

    `jitter_s` is drawn for each message and added to its latency; a message that is overtaken by an
    earlier one's draw waits for it, as in a TCP stream.
    """

    preset: Literal["4g", "lan320", "5g"] | None = None
    """Both rates: 98, 320 and 802 Mbit/s."""
    uplink_mbps: Mbps | None = None
    """Mbit/s to the server; needed without a preset."""
    downlink_mbps: Mbps | None = None
    """Mbit/s from the server; needed without a preset."""
    latency_s: NonNegative
    """One way."""
    jitter_s: Distribution | None = None
    """Drawn for each message and added to its latency."""

    @model_validator(mode="before")
    @classmethod
    def fill_from_preset(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("preset") in tuple(PRESETS_MBPS):  # a list has no hash
            rate = PRESETS_MBPS[data["preset"]]
            return {"uplink_mbps": rate, "downlink_mbps": rate, **data}
        return data

    @model_validator(mode="after")
    def has_rates(self) -> UserLink:
        for name in ("uplink_mbps", "downlink_mbps"):
            if getattr(self, name) is None:
                raise ValueError(f"{name} is missing: give it or a preset ({', '.join(PRESETS_MBPS)})")
        return self


class ServerLink(Block):
    """The server's own link, shared max-min fairly by concurrent transfers (Mbit/s)."""

    uplink_mbps: Mbps
    """Mbit/s to the users."""
    downlink_mbps: Mbps
    """Mbit/s from the users."""


class Network(Block):
    """Links, and the seconds that the RPC layer costs the receiver of each message.

    What users have for each other, shares, is `relayed` over the server's link, or goes `direct` from user to
    user as in LightSecAgg section 6: then it passes their own links only, the sender's and the receiver's.
    """

    users: UserLink
    """The link of each user."""
    server: ServerLink
    """The server's own link."""
    peers: Literal["relayed", "direct"] = "relayed"
    """Whether shares pass the server\'s link, or only those of the two users."""
    overhead_s: NonNegative
    """Of the RPC layer, for each message received."""


class Server(Block):
    """The server's machine: its vector work is divided by `cores`, per-message overhead is not."""

    cores: Count = 1
    """Its vector work is divided by them."""
    slowdown: Positive = 1.0
    """Against the machine of the clock."""
