"""Places on a chart: round ticks, and shares of a width in percent."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """From `low` to `high`, with ticks at round numbers within."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        """Where a value lies, in percent of the axis."""
        return 100 * (value - self.low) / (self.high - self.low)

    def label(self, tick: float) -> str:
        """A tick with as many decimals as its neighbours need."""
        step = self.ticks[1] - self.ticks[0] if len(self.ticks) > 1 else 1.0
        return f"{tick:.{max(0, -math.floor(math.log10(step) + 1e-9))}f}"


def axis(low: float, high: float, count: int = 5) -> Axis:
    """An axis that holds low .. high (low <= high), with about `count` ticks; it ends at its outer ticks."""
    span = (high - low) or abs(high) or 1.0
    rough = span / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    last = max(last, first + 1)
    ticks = tuple(k * step for k in range(first, last + 1))
    return Axis(ticks[0], ticks[-1], ticks)
