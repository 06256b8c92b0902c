"""Colours, dashes and axes of the charts, on the page and in figures.

The colours are from Okabe and Ito (Color Universal Design, 2008): people with any colour vision distinguish
them. The four phases have four of them to themselves, everywhere. Protocols share the others and black, and
differ by their dashes as well.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from simfl.trace.rows import CHECK_IN, PHASES

PHASE_COLOUR: dict[str, str] = dict(zip(PHASES, ("#0072B2", "#009E73", "#E69F00", "#D55E00"), strict=True))
"""Blue, bluish green, orange, vermillion."""
PATH_COLOUR = {CHECK_IN: "#8C8C8C", **PHASE_COLOUR}
"""The wait for check-ins, before the phases, is grey."""
LINE_COLOURS = ("ink", "#CC79A7", "#56B4E9")
"""Colours of protocols' lines; `ink` is the colour of the text around them."""
LINE_DASHES = ("", "6 3", "2 3", "9 3 2 3")
"""Dashes of protocols' lines in units of a line's width; the first is solid."""


def line(index: int) -> tuple[str, str]:
    """Return colour and dashes of a scenario's protocol number `index`; twelve differ, then they repeat."""
    # All colours with a solid line first, then all with the next dashes: few protocols differ by colour.
    dashes, colour = divmod(index, len(LINE_COLOURS))
    return LINE_COLOURS[colour], LINE_DASHES[dashes % len(LINE_DASHES)]


def stacked(parts: Iterable[tuple[str, str, float]]) -> list[dict[str, Any]]:
    """Return the parts of a bar one behind the other, each with its start.

    Args:
        parts: The phase, the text and the width in percent of each.
    """
    placed, start = [], 0.0
    for phase, text, wide in parts:
        # Rounded when it is written. `start` is not, so that errors do not add up along the bar.
        placed.append({"phase": phase, "text": text, "at": round(start, 3), "wide": round(wide, 3)})
        start += wide
    return placed


@dataclass(frozen=True)
class Axis:
    """An axis with ticks at round numbers, at both ends too."""

    ticks: tuple[float, ...]
    """Values of the ticks, ascending."""

    def at(self, value: float) -> float:
        """Return the place of a value, in percent of the axis."""
        low, high = self.ticks[0], self.ticks[-1]
        return 100 * (value - low) / (high - low)

    def label(self, tick: float) -> str:
        """Return a tick with as many decimals as its neighbours need.

        >>> [axis(0.0, 1.2).label(tick) for tick in axis(0.0, 1.2).ticks]
        ['0.00', '0.25', '0.50', '0.75', '1.00', '1.25']
        """
        step = self.ticks[1] - self.ticks[0]
        # The tolerance keeps the logarithm of a step such as 0.1 at a whole number.
        decimals = -math.floor(math.log10(step) + 1e-9)
        decimals += round(step * 10.0**decimals, 6) % 1 > 0  # a step of 0.25 needs two
        return f"{tick:.{max(0, decimals)}f}"


def axis(low: float, high: float) -> Axis:
    """Return an axis that holds low .. high (low <= high), with about five ticks.

    >>> axis(0.0, 5.9).ticks
    (0.0, 2.0, 4.0, 6.0)
    """
    # Equal values, and zeros, still need an axis of some length.
    rough = ((high - low) or abs(high) or 1.0) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    # The tolerances here keep rounding errors from adding a tick beyond a value that is a tick itself
    # (`test_an_axis_holds_its_values_between_even_ticks`).
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    # Two ticks at least, so that equal values have a place on the axis.
    return Axis(tuple(k * step for k in range(first, max(last, first + 1) + 1)))
