"""SecAgg+ (Bell 2020): pairwise masks over a random k-regular graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from simfl.blocks import Bits, Count
from simfl.errors import counted
from simfl.protocols import graph_design, graphs
from simfl.protocols.machine import Entropy, Params
from simfl.protocols.protocol import Problems
from simfl.protocols.secagg import Derived, Pairwise


class SecAggPlus(Pairwise):
    """Pairwise masks over a random k-regular graph (Bell 2020); `t` shares reconstruct.

    Unless given, k and t are the least for which a round is insecure with probability at most 2^-sigma
    and cannot be recovered with at most 2^-eta, when T users collude and D are lost.
    """

    source = "Bell 2020"

    protocol: Literal["secagg_plus"] = "secagg_plus"
    k: Derived[Count] = None
    """The degree of the graph; by rule unless given."""
    t: Derived[Count] = None
    """Shares that reconstruct a secret; by rule unless given."""
    sigma: Bits = 40.0
    """Security: a round is insecure with probability at most 2^-sigma."""
    eta: Bits = 30.0
    """Correctness: a round cannot be recovered with probability at most 2^-eta."""

    def graph(self, users: Sequence[int], p: Params, entropy: Entropy) -> graphs.Graph:
        return graphs.harary(users, p.k, entropy("graph"))

    def params(self, p: Params) -> Params:
        k, t = self.k, self.t
        if k is None or t is None:
            k, t = graph_design.design(p.N, p.T, p.D, self.sigma, self.eta, k=k, t=t)
        return replace(super().params(p), t=t, k=min(k, p.N - 1))

    def problems(self, p: Params) -> Problems:
        """2 <= t <= k + 1 <= N; a complete graph must hold T and D for certain."""
        if self.k is not None and not 2 <= self.k < p.N:
            yield "k", f"k={self.k} must be at least 2 and below N={p.N}"
            return
        most = p.N if self.k is None else self.k + 1
        if self.t is not None and not 2 <= self.t <= most:
            yield "t", f"t={self.t} must be at least 2 and at most k + 1 = {most}"
        if self.t is None and max(2, p.T + 1) > p.N - p.D:
            least = f"T + 1 = {p.T + 1}" if p.T else "2: a sum over one user is that user's update"
            left = f"D={p.D} leaves N - D = {counted(p.N - p.D, 'user')}"
            yield "privacy.D", f"{left}, fewer than {least} (protocol {{name}})"

    def notes(self, p: Params) -> Iterator[str]:
        failure = graph_design.failure(p.N, p.k, p.t, p.T, p.D)
        yield (
            f"k = {p.k}, t = {p.t} of N = {p.N} (T = {p.T} collude, D = {p.D} are lost): insecure with "
            f"probability {graph_design.at_most(failure.insecure)}, not recovered with "
            f"{graph_design.at_most(failure.incorrect)}"
        )

    @classmethod
    def small(cls, users: int, lost: int) -> dict[str, Any]:
        return {"k": 2, "t": 2}
