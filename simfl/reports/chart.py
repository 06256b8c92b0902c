"""Colours, dashes and axes of the charts, on the page and in figures.

The colours are those of Okabe and Ito (Color Universal Design, 2008), which any colour vision tells apart.
The four phases have four of them for themselves, everywhere; protocols share the others and black, and are
told apart by their dashes as well.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from simfl.trace.rows import PHASES

# Blue, bluish green, orange, vermillion.
PHASE_COLOUR: dict[str, str] = dict(zip(PHASES, ("#0072B2", "#009E73", "#E69F00", "#D55E00"), strict=True))
# Lines that stand for protocols; `ink` is the colour of the text around them. Dashes are in units of a line's
# width; the first is solid.
LINE_COLOURS = ("ink", "#CC79A7", "#56B4E9")
LINE_DASHES = ("", "6 3", "2 3", "9 3 2 3")


def line(index: int) -> tuple[str, str]:
    """Colour and dashes of a scenario's protocol number `index`; twelve differ, then they repeat."""
    dashes, colour = divmod(index, len(LINE_COLOURS))
    return LINE_COLOURS[colour], LINE_DASHES[dashes % len(LINE_DASHES)]


def stacked(parts: Iterable[tuple[str, str, float]]) -> list[dict[str, Any]]:
    """Return the parts of a bar behind each other: the phase, text and width in percent of each."""
    found, at = [], 0.0
    for phase, text, wide in parts:
        found.append({"phase": phase, "text": text, "at": round(at, 3), "wide": round(wide, 3)})
        at += wide
    return found


@dataclass(frozen=True)
class Axis:
    """An axis with ticks at round numbers, at both ends too."""

    ticks: tuple[float, ...]

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
        decimals = -math.floor(math.log10(step) + 1e-9)
        decimals += round(step * 10.0**decimals, 6) % 1 > 0  # a step of 0.25 needs two
        return f"{tick:.{max(0, decimals)}f}"


def axis(low: float, high: float) -> Axis:
    """Return an axis that holds low .. high (low <= high), with about five ticks.

    >>> axis(0.0, 5.9).ticks
    (0.0, 2.0, 4.0, 6.0)
    """
    rough = ((high - low) or abs(high) or 1.0) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return Axis(tuple(k * step for k in range(first, max(last, first + 1) + 1)))
