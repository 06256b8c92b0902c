"""CCESA (Choi 2020), Alg. 1: pairwise masks over an Erdos-Renyi graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import model_validator

from simfl.blocks import Count, Fraction
from simfl.protocols import graph_design, graphs
from simfl.protocols.machine import Entropy, Params
from simfl.protocols.protocol import Problems
from simfl.protocols.secagg import Derived, Pairwise


class Ccesa(Pairwise):
    """Pairwise masks over an Erdos-Renyi graph (CCESA, Choi 2020); `t` shares reconstruct.

    Unless given, p is p* of eq. 5 at a total drop-out probability of `q_total` (D/N unless given), and t
    that of Remark 4. `majority`: each user's t_i is more than half of its own neighbourhood instead.
    """

    source = "CCESA (Choi 2020), Alg. 1"
    pair_bytes = 140

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

    def graph(self, users: Sequence[int], p: Params, entropy: Entropy) -> graphs.Graph:
        return graphs.erdos_renyi(users, p.p, entropy("graph"))

    def lost_in_all(self, p: Params) -> float:
        """Return q_total: D/N unless given."""
        return p.D / p.N if self.q_total is None else self.q_total

    def params(self, p: Params) -> Params:
        edge = min(1.0, graph_design.p_star(p.N, self.lost_in_all(p))) if self.p is None else self.p
        if self.majority:
            return replace(super().params(p), t=2, majority=True, p=edge)
        t = graph_design.threshold(p.N, edge) if self.t is None else self.t
        return replace(super().params(p), t=t, p=edge)

    def problems(self, p: Params) -> Problems:
        """p > 0, 2 <= t <= N."""
        if self.p == 0:
            yield "p", "p=0 must be above 0: nobody would have a neighbour"
        if self.t is not None and not 2 <= self.t <= p.N:
            yield "t", f"t={self.t} must be at least 2 and at most N={p.N}"
        if p.N < 3:
            yield "", f"N={p.N} must be at least 3 for a random graph"

    def notes(self, p: Params) -> Iterator[str]:
        q, at_most = self.lost_in_all(p), graph_design.at_most
        rule = f"p = {p.p:.4f}" + (" = p* (eq. 5)" if self.p is None and p.p < 1 else "")
        if p.majority:
            yield f"{rule}, t_i more than half of each neighbourhood; Theorem 5 needs one t"
        else:
            yield (
                f"{rule}, t = {p.t} of N = {p.N} (q_total = {q:g}): not reliable with probability "
                f"{at_most(graph_design.unreliable_bound(p.N, p.p, q, p.t))} (Theorem 5), open to the "
                f"unmasking attack {at_most(graph_design.unmasking_bound(p.N, p.p, p.t))}"
            )
        exposed = graph_design.not_private_bound(p.N, p.p, q)
        yield f"not private with probability {at_most(exposed)} (Theorem 6; nobody colludes)"

    def pairs(self, p: Params, users: int, members: int) -> float:
        if p.N > 2 and 0 <= self.lost_in_all(p) <= 1:
            return self.params(p).p * p.N**2
        return super().pairs(p, users, members)

    @classmethod
    def small(cls, users: int, lost: int) -> dict[str, Any]:
        return {"p": 0.7, "t": 2}
