"""The public parameters of a scenario's protocols, and what they promise."""

from __future__ import annotations

from collections.abc import Iterator

from simfl.protocols.machine import Params
from simfl.protocols.protocol import Protocol
from simfl.scenario.schema import Scenario


def common(s: Scenario, d: int = 1) -> Params:
    """Return what a scenario says for all protocols of updates of length d, without their own letters."""
    N = s.cohort
    T, D, U = (s.privacy.T, s.privacy.D, s.privacy.U) if s.privacy else (0, 0, None)
    clip, levels = (s.quantization.clip, s.quantization.levels) if s.quantization else (1.0, 1)
    K, bound = (s.buffer.K, s.buffer.staleness_bound) if s.buffer else (1, 0)
    return Params(
        d=d, q=s.field.q, N=N, T=T, D=D, U=U or max(1, N - D), U_given=U is not None,
        clip=clip, levels=levels, K=K, staleness_bound=bound, session=s.name.encode(),
    )  # fmt: skip


def params(s: Scenario, spec: Protocol, d: int) -> Params:
    """Return a protocol's public parameters for updates of length d."""
    return spec.params(common(s, d))


def notes(scenario: Scenario) -> Iterator[str]:
    """Yield a sentence for each thing that a protocol's parameters promise."""
    for name in scenario.protocols:
        s = scenario.of(name)
        spec = s.protocols[name]
        for note in spec.notes(params(s, spec, 1)):
            yield f"{name}: {note}"
