"""The protocols that are compared, and what their masks, sums and staleness are made with."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from simfl.blocks import Bits, Block, Count, Fraction, Levels, Name, Natural, Positive
from simfl.crypto import ntt
from simfl.errors import show
from simfl.learning.partition import AnyPartition
from simfl.protocols.staleness import AnyStaleness, Constant
from simfl.selection.schemes import AnySelection

_Number = TypeVar("_Number")
Derived = Annotated[_Number | None, BeforeValidator(lambda value: None if value == "auto" else value)]
"""A number, or what the protocol's own rule says: `auto`, or nothing."""


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


class Entry(Block):
    """What every entry of `protocols` may say for itself, in place of what the scenario says for all."""

    selection: AnySelection | None = None
    """For this entry only."""
    partition: AnyPartition | None = None
    """For this entry only."""


class FedAvg(Entry):
    """No protection; the floor (McMahan 2017)."""

    protocol: Literal["fedavg"] = "fedavg"


class Pairwise(Entry):
    """What protocols of pairwise masks share."""

    lost_masks: Literal["needed", "all"] = "needed"
    """Which masks of a lost user the server expands: with who survived, or `all` (LightSecAgg App. C)."""


class SecAgg(Pairwise):
    """Pairwise masks over the complete graph (Bonawitz 2017); `t` shares reconstruct.

    Unless given, t = T + 1, and at least 2.
    """

    protocol: Literal["secagg"] = "secagg"
    t: Derived[Count] = None
    """Shares that reconstruct a secret; T + 1, and at least 2, unless given."""

    def threshold(self, T: int) -> int:
        """t, given or not."""
        return max(2, T + 1) if self.t is None else self.t


class SecAggPlus(Pairwise):
    """Pairwise masks over a random k-regular graph (Bell 2020); `t` shares reconstruct.

    Unless given, k and t are the least for which a round is insecure with probability at most 2^-sigma
    and cannot be recovered with at most 2^-eta, when T users collude and D are lost.
    """

    protocol: Literal["secagg_plus"] = "secagg_plus"
    k: Derived[Count] = None
    """The degree of the graph; by rule unless given."""
    t: Derived[Count] = None
    """Shares that reconstruct a secret; by rule unless given."""
    sigma: Bits = 40.0
    """Security: a round is insecure with probability at most 2^-sigma."""
    eta: Bits = 30.0
    """Correctness: a round cannot be recovered with probability at most 2^-eta."""


class Ccesa(Pairwise):
    """Pairwise masks over an Erdos-Renyi graph (CCESA, Choi 2020); `t` shares reconstruct.

    Unless given, p is p* of eq. 5 at a total drop-out probability of `q_total` (D/N unless given), and t
    that of Remark 4. `majority`: each user's t_i is more than half of its own neighbourhood instead.
    """

    protocol: Literal["ccesa"] = "ccesa"
    p: Derived[Fraction] = None
    """The probability of an edge; p* of eq. 5 unless given."""
    t: Derived[Count] = None
    """Shares that reconstruct a secret; Remark 4's unless given."""
    q_total: Fraction | None = None
    """The total drop-out probability that the graph is made for; D/N unless given."""
    majority: bool = False
    """Each user's t_i is more than half of its own neighbourhood; excludes `t`."""

    @model_validator(mode="after")
    def one_rule(self) -> Ccesa:
        if self.majority and self.t is not None:
            raise ValueError(f"t={self.t} and majority: true exclude each other: give one of them")
        return self


class LightSecAgg(Entry):
    """One-shot recovery of the aggregate mask (LightSecAgg Alg. 1)."""

    protocol: Literal["lightsecagg"] = "lightsecagg"


class FedBuff(Entry):
    """Buffered asynchronous aggregation without protection (Nguyen 2021)."""

    protocol: Literal["fedbuff"] = "fedbuff"
    staleness: AnyStaleness = Constant()
    """The weight of an update that is tau versions old."""


class LightSecAggAsync(Entry):
    """LightSecAgg over a buffer (App. F); `c_g` quantises the staleness weights (eq. 34)."""

    protocol: Literal["lightsecagg_async"] = "lightsecagg_async"
    staleness: AnyStaleness = Constant()
    """The weight of an update that is tau versions old."""
    c_g: Count = 64
    """Levels of the staleness weights (eq. 34)."""


Protocol = Annotated[
    FedAvg | SecAgg | SecAggPlus | Ccesa | LightSecAgg | FedBuff | LightSecAggAsync,
    Field(discriminator="protocol"),
]


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
        out[name] = {"protocol": name, **entry} if isinstance(entry, dict) else entry
    return out


Protocols = Annotated[dict[Name, Protocol], BeforeValidator(_name_protocols), Field(min_length=1)]


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
