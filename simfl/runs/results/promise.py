"""The promise of differential privacy that a run makes to its users."""

from typing import Annotated, Final

from pydantic import Field

from simfl.runs.results.block import Share, SummaryBlock

LARGEST: Final = 1e15
"""In place of a larger epsilon: files have no infinite numbers."""
SLACK: Final = 1e-9
"""Relative excess of a spent epsilon that is rounding, as of a promise that is met to its last digit."""

Amount = Annotated[float, Field(ge=0, le=LARGEST)]


class Promise(SummaryBlock):
    """An epsilon for all rounds of a run together."""

    epsilon: Amount
    """Given by the scenario, or that of its noise if none is missing."""
    delta: Share
    """Probability with which epsilon may fail to hold."""
    noise_multiplier: Amount
    """Standard deviation of the noise in a sum, in clips; given, or derived from epsilon."""
    stated: bool
    """The scenario states epsilon; else it follows from the noise, and is no bound that a run can break."""

    def is_kept(self, spent: float | None) -> bool:
        """Return True unless an epsilon was promised, and more was spent."""
        return not self.stated or spent is None or spent <= self.epsilon * (1 + SLACK)
