"""The energy of a round or of a run in joules, by party, phase and source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field

from simfl.runs.results.block import ByPhase, Count, SummaryBlock
from simfl.trace.rows import PHASES, SERVER

FJ = 10**15
"""Femtojoules in a joule."""

Joules = Annotated[float, Field(ge=0, le=1e24)]


class EnergySummary(SummaryBlock):
    """The energy drawn in a round or a run."""

    users: ByPhase[Joules]
    """[J] Drawn by all users together, by phase."""
    server: ByPhase[Joules]
    """[J] Drawn by the server, by phase."""
    sources: dict[str, Joules]
    """[J] Drawn by the users, by source: cpu, up, down, active, tail, idle."""
    spenders: Count
    """Users that drew any."""

    @classmethod
    def of(cls, spent: Mapping[tuple[str, int, str], int]) -> Self | None:
        """Return the summary of an energy account; None of an empty one.

        Args:
            spent: Femtojoules by (phase, party, source).

        >>> summary = EnergySummary.of({("upload", 3, "tail"): 2 * FJ, ("upload", -1, "cpu"): FJ})
        >>> summary.users_j, summary.server_j, summary.sources
        (2.0, 1.0, {'tail': 2.0})
        """
        if not spent:
            return None
        phases, sources = Counter[tuple[bool, str]](), Counter[str]()
        for (phase, party, source), fj in spent.items():
            phases[party == SERVER, phase] += fj
            if party != SERVER:
                sources[source] += fj
        return cls(
            # Added as integers and divided once: a float sum would depend on the order of the parties.
            users=ByPhase[Joules].of(lambda phase: phases[False, phase] / FJ),
            server=ByPhase[Joules].of(lambda phase: phases[True, phase] / FJ),
            sources={source: fj / FJ for source, fj in sorted(sources.items())},
            spenders=len({party for _, party, _ in spent if party != SERVER}),
        )

    @property
    def users_j(self) -> float:
        """[J] Drawn by all users in all phases."""
        return sum(self.users[phase] for phase in PHASES)

    @property
    def server_j(self) -> float:
        """[J] Drawn by the server in all phases."""
        return sum(self.server[phase] for phase in PHASES)
