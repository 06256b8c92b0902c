"""Axes, units and colours."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simfl.reports import chart
from simfl.reports.chart import axis
from simfl.runs.results import units
from simfl.trace.rows import PHASES

VALUE = st.floats(-1e6, 1e6).map(lambda x: round(x, 6))


@given(VALUE, VALUE)
def test_an_axis_holds_its_values_between_even_ticks(one: float, other: float) -> None:
    low, high = sorted((one, other))
    found = axis(low, high)
    slack = 1e-6 * max(1.0, abs(low), abs(high))
    assert found.ticks[0] <= low + slack
    assert found.ticks[-1] >= high - slack
    assert 2 <= len(found.ticks) <= 9
    steps = [b - a for a, b in zip(found.ticks, found.ticks[1:], strict=False)]
    assert all(math.isclose(step, steps[0], rel_tol=1e-5) for step in steps)
    assert (found.at(found.ticks[0]), found.at(found.ticks[-1])) == (0, pytest.approx(100))


def test_ticks_are_round_numbers() -> None:
    assert axis(0.0, 5.9).ticks == (0, 2, 4, 6)
    assert [axis(0.91, 0.96).label(t) for t in axis(0.91, 0.96).ticks][:2] == ["0.91", "0.92"]
    assert [axis(0.0, 1.0).label(t) for t in axis(0.0, 1.0).ticks] == [
        "0.0",
        "0.2",
        "0.4",
        "0.6",
        "0.8",
        "1.0",
    ]


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0 s"), (999, "999 ns"), (12_155, "12.2 µs"), (40_212_898, "40.2 ms"), (3_350_000_000, "3.35 s"),
     (600_000_000_000, "600 s")],
)  # fmt: skip
def test_seconds_have_three_figures(ns: int, text: str) -> None:
    assert units.seconds(ns) == text


def test_shares_in_percent() -> None:
    assert [units.percent(n, 200) for n in (0, 1, 84, 200)] == ["0 %", "0.5 %", "42 %", "100 %"]
    assert [units.percent(n, 10_000) for n in (1, 4, 5, 6)] == ["<0.1 %", "<0.1 %", "0.1 %", "0.1 %"]
    assert units.percent(1, 0) == "0 %"


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2)."""
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_phases_have_okabe_ito_colours_that_differ_in_lightness() -> None:
    okabe_ito = {"#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#000000"}
    assert list(chart.PHASE_COLOUR) == list(PHASES)
    assert len(set(chart.PHASE_COLOUR.values())) == 4
    assert {*chart.PHASE_COLOUR.values(), *chart.LINE_COLOURS[1:]} <= okabe_ito
    assert not set(chart.PHASE_COLOUR.values()) & set(chart.LINE_COLOURS)
    seen = [luminance(colour) + 0.05 for colour in chart.PHASE_COLOUR.values()]
    for left, right in pairwise(seen):
        assert max(left, right) / min(left, right) > 1.25


def test_twelve_protocols_have_twelve_lines() -> None:
    assert len({chart.line(k) for k in range(12)}) == 12


@pytest.mark.parametrize("high", [0.0013, 0.012, 0.13, 0.6, 1.0, 1.2, 3.0, 11.0, 60.0, 130.0, 12000.0])
def test_labels_of_ticks_are_their_values(high: float) -> None:
    """Also where they are a quarter of a power of ten apart, as 0, 0.25, 0.5 below 1.2."""
    drawn = axis(0.0, high)
    assert [float(drawn.label(tick)) for tick in drawn.ticks] == pytest.approx(drawn.ticks)
