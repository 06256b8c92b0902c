"""One colour for one thing on every page and figure, told apart with any colour vision.

Okabe and Ito's eight colours (Color Universal Design, 2008). The four phases have four of them for
themselves, everywhere; protocols share the others and black, and are told apart by their dashes as well.
"""

from __future__ import annotations

from simfl.results.trace import PHASES

PHASE: dict[str, str] = dict(zip(PHASES, ("#0072B2", "#009E73", "#E69F00", "#D55E00"), strict=True))
"""Phase -> colour: blue, bluish green, orange, vermillion."""

PROTOCOL = ("ink", "#CC79A7", "#56B4E9")
"""Colours of lines that stand for protocols; `ink` is the colour of the text around them."""

DASHES = ("", "6 3", "2 3", "9 3 2 3")
"""Dashes of those lines, in units of a line's width in a drawing; the first is solid."""


def line(index: int) -> tuple[str, str]:
    """Colour and dashes of the protocol at this place of a scenario; twelve differ, then they repeat."""
    return PROTOCOL[index % len(PROTOCOL)], DASHES[index // len(PROTOCOL) % len(DASHES)]
