"""Time to a target: the seconds, rounds and bytes after which a run's model first meets it.

A target is reached at the first evaluation of the run that finds at least that accuracy (at most that loss),
and it is kept if every later evaluation of the run finds so too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from simfl.runs.results.block import Count, Seconds, SummaryBlock

if TYPE_CHECKING:
    from simfl.runs.results.round_summary import RoundSummary


class Reached(SummaryBlock):
    """The first evaluation that met a target, and what it took until then, failed rounds too."""

    after_s: Seconds
    """From the start of the run to the end of that round."""
    rounds: Count
    """Until then, failed ones too."""
    bytes_up: Count
    """Sent by all users until then."""
    bytes_down: Count
    """Sent to all users until then."""
    kept: bool
    """Every later evaluation met the target, too."""
    measured: float
    """The accuracy or loss of that evaluation."""


class Target(SummaryBlock):
    """A target of the scenario."""

    value: Annotated[float, Field(ge=0, le=1e9)]
    """The accuracy or loss to reach."""
    reached: Reached | None
    """The first evaluation that met it, if any did."""


def measure(rounds: Sequence[RoundSummary], wanted: Mapping[str, float]) -> dict[str, Target]:
    """Return each target with what the rounds of one protocol, in order, took to reach it."""
    return {what: Target(value=value, reached=_first(rounds, what, value)) for what, value in wanted.items()}


def _first(rounds: Sequence[RoundSummary], what: str, value: float) -> Reached | None:
    evaluated = [number for number, r in enumerate(rounds, 1) if r.accuracy is not None]
    met = [_meets(rounds[number - 1], what, value) for number in evaluated]
    if True not in met:
        return None
    first = met.index(True)
    until = rounds[: evaluated[first]]
    return Reached(
        after_s=until[-1].end_s,
        rounds=len(until),
        bytes_up=sum(r.bytes_up for r in until),
        bytes_down=sum(r.bytes_down for r in until),
        kept=all(met[first:]),
        measured=getattr(until[-1], what),
    )


def _meets(r: RoundSummary, what: str, value: float) -> bool:
    found: float | None = getattr(r, what)
    if found is None:  # the loss of a model that diverged
        return False
    return found >= value if what == "accuracy" else found <= value
