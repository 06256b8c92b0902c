"""SecAgg (Bonawitz 2017): pairwise masks over the complete graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator

from simfl.blocks import Count
from simfl.dataplane.ops import Ops
from simfl.protocols import graphs
from simfl.protocols.keyed_messages import Inbox, Invite
from simfl.protocols.machine import Entropy, Params
from simfl.protocols.pairwise_masks import SecAggClient, SecAggServer
from simfl.protocols.protocol import KEYED, STAGES, Problems, Protocol

_Number = TypeVar("_Number")
Derived = Annotated[_Number | None, BeforeValidator(lambda value: None if value == "auto" else value)]
"""A number, or what the protocol's own rule says: `auto`, or nothing."""

SECRETS = 256
"""Bytes of the shares of a user's two secrets for one other: sealed, opened, and the key."""


class Pairwise(Protocol):
    """The part that protocols of pairwise masks share."""

    points, timers, model_with = KEYED, STAGES, (Invite, Inbox)

    lost_masks: Literal["needed", "all"] = "needed"
    """Which masks of a lost user the server expands: with who survived, or `all` (LightSecAgg App. C)."""

    def client(self, user: int, p: Params, ops: Ops, entropy: Entropy) -> SecAggClient:
        return SecAggClient(user, p, ops, entropy)

    def server(self, users: Sequence[int], p: Params, ops: Ops, entropy: Entropy) -> SecAggServer:
        return SecAggServer(self.graph(users, p, entropy), p, ops)

    def graph(self, users: Sequence[int], p: Params, entropy: Entropy) -> graphs.Graph:
        """Return the graph of a round: who shares with whom."""
        return graphs.complete(users)

    def needed(self, stage: str, p: Params) -> int:
        return p.t

    def params(self, p: Params) -> Params:
        return replace(p, all_masks=self.lost_masks == "all")

    def shares_bytes(self, p: Params, users: int) -> int:
        return round(users * SECRETS * (p.k + 1 if p.k else p.p * users))


class SecAgg(Pairwise):
    """Pairwise masks over the complete graph (Bonawitz 2017); `t` shares reconstruct.

    Unless given, t = T + 1, and at least 2.
    """

    source = "Bonawitz 2017"
    pair_bytes = 65

    protocol: Literal["secagg"] = "secagg"
    t: Derived[Count] = None
    """Shares that reconstruct a secret; T + 1, and at least 2, unless given."""

    def params(self, p: Params) -> Params:
        return replace(super().params(p), t=max(2, p.T + 1) if self.t is None else self.t)

    def problems(self, p: Params) -> Problems:
        """T < t <= N - D, t >= 2: T colluders must not reconstruct, those who are left must."""
        t = self.params(p).t
        shown = f"t={t} (T + 1)" if self.t is None and t == p.T + 1 else f"t={t}"
        if t <= p.T:
            yield "t", f"{shown} must be above privacy.T={p.T}"
        elif t < 2:
            yield "t", f"{shown} must be at least 2: a sum over one user is that user's update"
        if t > p.N - p.D:
            yield "t", f"{shown} must not be above N - D = {p.N} - {p.D} = {p.N - p.D}"

    @classmethod
    def small(cls, users: int, lost: int) -> dict[str, Any]:
        return {"t": users - lost}
