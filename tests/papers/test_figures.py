"""Charts of stored results: what is drawn is what is stored, on the axes that it asks for."""

from __future__ import annotations

from itertools import pairwise

import pytest
from matplotlib.text import Text

from papers.entry import Chart, Evidence, Line
from papers.figures import draw, of_result
from papers.store import Stored

CHART = Chart(
    "title", "N", "seconds", (Line("a", (1.0, 2.0), (3.0, 4.0)), Line("b", (1.0,), (5.0,))), log_x=2
)


def test_a_chart_shows_its_lines() -> None:
    (axes,) = draw(CHART).axes
    assert [line.get_xydata().tolist() for line in axes.lines] == [[[1, 3], [2, 4]], [[1, 5]]]
    assert [line.get_label() for line in axes.lines] == ["a", "b"]
    assert (axes.get_title(), axes.get_xlabel(), axes.get_ylabel()) == ("title", "N", "seconds")
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "linear")


def test_marks_are_for_few_values() -> None:
    many = tuple(map(float, range(30)))
    (axes,) = draw(Chart("t", "x", "y", (Line("many", many, many), *CHART.lines))).axes
    assert [line.get_marker() for line in axes.lines] == ["None", "o", "o"]


def test_each_chart_has_a_file_of_its_own() -> None:
    stored = Stored("x", "simfl reproduce x", 1, "0+1", 1.0, Evidence((), (CHART, CHART)))
    assert list(of_result(stored)) == ["x", "x_2"]


@pytest.mark.ci
def test_ticks_of_logarithmic_axes_are_plain_numbers() -> None:
    chart = Chart("t", "x", "y", (Line("a", (1.0, 1024.0), (1e-3, 300.0)),), log_x=2, log_y=10)
    figure = draw(chart)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    labels = [
        text.get_text() for text in (*axes.get_xticklabels(), *axes.get_yticklabels()) if text.get_text()
    ]
    assert {"1024", "100"} <= set(labels)
    assert not [label for label in labels if "$" in label]


def test_a_line_without_values_is_left_out() -> None:
    lines = [Line(str(k), (1.0, 2.0), (1.0, 1.0 + k)) for k in range(4)]
    (axes,) = draw(Chart("t", "x", "y", (*lines[:2], Line("none", (), ()), *lines[2:]))).axes
    assert [text.get_text() for text in axes.texts] == ["0", "1", "2", "3"]


@pytest.mark.ci
def test_many_lines_have_looks_and_names_of_their_own() -> None:
    """Names stand at the ends, none over another; beyond what finds room, in a legend."""
    lines = tuple(Line(f"line {k}", (1.0, 2.0), (0.0, 5.0 + (k % 3) / 100)) for k in range(9))
    figure = draw(Chart("t", "x", "y", lines))
    (axes,) = figure.axes
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in axes.lines}
    assert len(looks) == 9
    assert figure.legends == []
    figure.draw_without_rendering()
    boxes = sorted(map(Text.get_window_extent, axes.texts), key=lambda box: box.y0)
    assert all(lower.y1 <= upper.y0 + 0.5 for lower, upper in pairwise(boxes))
    assert len(boxes) == 9
    assert figure.bbox.x1 >= max(box.x1 for box in boxes)
    many = draw(Chart("t", "x", "y", tuple(Line(str(k), (1.0,), (1.0,)) for k in range(17))))
    assert [len(many.axes[0].texts), len(many.legends)] == [0, 1]
