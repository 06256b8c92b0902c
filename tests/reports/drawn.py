"""What is drawn in a figure: its panels, bars and texts."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib", reason="simfl[figures] is not installed")

from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure


def axes_of(figure: Figure | None) -> list[Axes]:
    assert figure is not None
    return list(figure.axes)


def drawn_bars(axes: Axes) -> Iterator[tuple[float, str, float, float]]:
    """(middle in the axes, colour, from, to) of each bar."""
    for collection in axes.collections:
        for path in collection.get_paths():
            low, high = path.vertices.min(axis=0), path.vertices.max(axis=0)
            yield (low[1] + high[1]) / 2, to_hex(collection.get_facecolor()[0]), low[0], high[0]


def covered(spans: list[tuple[float, float]], at: float) -> bool:
    return any(start <= at < end for start, end in spans)


def texts(svg: bytes) -> str:
    found = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return "\n".join("".join(element.itertext()) for element in found)
