"""The graph of neighbours that a protocol of a scenario gets, and what that graph promises."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from simfl.protocols import graph_design
from simfl.scenario import schema


@dataclass(frozen=True, slots=True)
class Sparsity:
    """Parameters of a graph: t shares reconstruct (`majority`: of each user's own neighbourhood more than
    half), degree k (SecAgg+), connection probability p (CCESA)."""

    t: int = 1
    majority: bool = False
    k: int = 0
    p: float = 1.0


def sparsity(s: schema.Scenario, spec: schema.Protocol) -> Sparsity:
    """What a protocol's graph is made with: as the scenario says, by the protocol's own rule for the rest."""
    N, (T, D) = s.cohort, (s.privacy.T, s.privacy.D) if s.privacy else (0, 0)
    match spec:
        case schema.SecAgg():
            return Sparsity(spec.threshold(T))
        case schema.SecAggPlus():
            k, t = spec.k, spec.t
            if k is None or t is None:
                k, t = graph_design.design(N, T, D, spec.sigma, spec.eta, k=k, t=t)
            return Sparsity(t, k=min(k, N - 1))
        case schema.Ccesa():
            p = min(1.0, graph_design.p_star(N, q_total(s, spec))) if spec.p is None else spec.p
            if spec.majority:
                return Sparsity(2, majority=True, p=p)
            return Sparsity(graph_design.threshold(N, p) if spec.t is None else spec.t, p=p)
    return Sparsity()


def q_total(s: schema.Scenario, spec: schema.Ccesa) -> float:
    """The total drop-out probability that a graph is made for: D/N unless given."""
    return (s.privacy.D if s.privacy else 0) / s.cohort if spec.q_total is None else spec.q_total


def promises(s: schema.Scenario) -> Iterator[str]:
    """One line for each protocol over a sparse graph: its parameters, and how often it fails at most."""
    T, D = (s.privacy.T, s.privacy.D) if s.privacy else (0, 0)
    for name, spec in s.protocols.items():
        N, graph = s.of(name).cohort, sparsity(s.of(name), spec)
        if isinstance(spec, schema.SecAggPlus):
            failure = graph_design.failure(N, graph.k, graph.t, T, D)
            yield (
                f"{name}: k = {graph.k}, t = {graph.t} of N = {N} (T = {T} collude, D = {D} are lost): "
                f"insecure with probability {_at_most(failure.insecure)}, not recovered with "
                f"{_at_most(failure.incorrect)}"
            )
        elif isinstance(spec, schema.Ccesa):
            q, t = q_total(s.of(name), spec), graph.t
            rule = f"p = {graph.p:.4f}" + (" = p* (eq. 5)" if spec.p is None and graph.p < 1 else "")
            if graph.majority:
                yield f"{name}: {rule}, t_i more than half of each neighbourhood; Theorem 5 needs one t"
            else:
                unreliable = graph_design.unreliable_bound(N, graph.p, q, t)
                unmasked = graph_design.unmasking_bound(N, graph.p, t)
                yield (
                    f"{name}: {rule}, t = {t} of N = {N} (q_total = {q:g}): not reliable with probability "
                    f"{_at_most(unreliable)} (Theorem 5), open to the unmasking attack {_at_most(unmasked)}"
                )
            exposed = graph_design.not_private_bound(N, graph.p, q)
            yield f"{name}: not private with probability {_at_most(exposed)} (Theorem 6; nobody colludes)"


def _at_most(probability: float) -> str:
    if probability >= 1:
        return "up to 1: no promise"
    return f"at most {probability:.1e} = 2^{math.log2(probability):.1f}" if probability else "0"
