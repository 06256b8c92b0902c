"""The protocols that are compared, and what their masks, sums and staleness are made with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from simfl.blocks import Block, Count, Levels, Name, Natural, Positive
from simfl.crypto import ntt
from simfl.errors import show
from simfl.learning.partition import AnyPartition
from simfl.protocols.protocol import Protocol
from simfl.protocols.registry import PROTOCOLS
from simfl.selection.schemes import AnySelection


def _named(value: Any) -> Any:
    if isinstance(value, str) and value != "ntt":
        raise ValueError(f"must be a whole number or ntt, not {show(value)}")
    return ntt.Q if value == "ntt" else value


Prime = Annotated[
    int,
    BeforeValidator(_named),
    Field(strict=True, ge=3, lt=2**32),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 3, "exclusiveMaximum": 2**32}, {"const": "ntt"}]}
    ),
]
"""A prime by its value, or by the name of what it is good for."""


class Overrides(Block):
    """What every entry of `protocols` may say for itself, in place of what the scenario says for all."""

    selection: AnySelection | None = None
    """For this entry only."""
    partition: AnyPartition | None = None
    """For this entry only."""


if TYPE_CHECKING:

    class Entry(Protocol, Overrides):
        """A protocol with what its entry says for itself."""

        protocol: str = ""

else:
    Entry = PROTOCOLS.annotation(mixin=Overrides)


def _name_protocols(value: Any) -> Any:
    """An entry's protocol is its own name unless it says otherwise; `{fedavg: }` needs no braces."""
    if isinstance(value, list):
        if not all(isinstance(name, str) for name in value) or len(set(value)) < len(value):
            raise ValueError("a list of protocols holds names, each once; one with settings needs a mapping")
        value = dict.fromkeys(value)
    if not isinstance(value, dict):
        return value
    out = {}
    for name, entry in value.items():
        entry = {} if entry is None else entry
        if isinstance(entry, dict):
            entry = {"protocol": "module" if "module" in entry else name, **entry}
        out[name] = entry
    return out


Protocols = Annotated[dict[Name, Entry], BeforeValidator(_name_protocols), Field(min_length=1)]


class Privacy(Block):
    """T colluding users, D lost users, U users whose answers recover the aggregate: N - D >= U > T."""

    T: Natural
    """Users who may collude."""
    D: Natural
    """Users who may be lost; U + D is at most N."""
    U: Count | None = None
    """Users whose answers recover the aggregate, above T; N - D unless given."""


class FieldOfSums(Block):
    """The prime field F_q of masks and sums; the paper's q by default, `ntt` for 2147352577.

    LightSecAgg encodes by number theoretic transforms where q allows it: `ntt` does, the paper's q does not.
    """

    q: Prime = 2**32 - 5
    """A prime, or `ntt`."""


class Quantization(Block):
    """c_l levels per unit (LightSecAgg eq. 30); coordinates are clipped to [-clip, clip] and counted."""

    levels: Levels = 2**16
    """The levels per unit, c_l."""
    clip: Positive
    """Coordinates are held within +-clip, and counted."""
    on_overflow: Literal["error", "wrap"] = "error"
    """`wrap` runs although sums could wrap around, and counts those that do."""
