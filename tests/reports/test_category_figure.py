"""The figure of a sweep over words: its keys, its rows, its dots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simfl.errors import BadInput
from simfl.studies.sweep.figures import Total, categories, has_words, in_words, of_sweep, varied

FAST, SLOW = {"a_mbps": 1000, "b_mbps": 1000}, {"a_mbps": 10, "b_mbps": 10}
POINTS: list[dict[str, Any]] = [
    {"slowdown": slowdown, "profile": profile, "server": server, "peers": peers}
    for profile, slowdown in (("quick", 10), ("old", 1))
    for server in (FAST, SLOW)
    for peers in ("relayed", "direct")
]
TOTALS = [
    Total(point, name, 10.0 * k + j, 0.5 * j)
    for k, point in enumerate(POINTS)
    for j, name in enumerate(("secagg", "lightsecagg"))
]


def test_keys_that_go_along_are_left_out() -> None:
    assert varied(POINTS) == ["profile", "peers", "server"]
    assert varied(POINTS[:4]) == ["peers", "server"]
    assert varied(POINTS[:1]) == []


def test_labels_are_the_differences_of_points() -> None:
    assert has_words(TOTALS)
    numbers = [Total({"users": n, "profile": "quick"}, "secagg", 1.0, 0.0) for n in (1, 2)]
    assert not has_words(numbers)  # one word for all
    assert not has_words([])


def test_labels() -> None:
    assert in_words("network.server", FAST) == "server 1000 Mbit/s"
    assert in_words("server", {"cores": 2, "slowdown": 2}) == "server 2"
    assert in_words("privacy", {"T": 2, "D": 3}) == 'privacy {"T": 2, "D": 3}'
    assert in_words("dropout.rate", 0.3) == "30 % lost"


def test_a_dot_for_each_protocol_in_each_row() -> None:
    figure = categories(TOTALS)
    assert [axes.get_title() for axes in figure.axes] == ["quick", "old"]
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert rows == [
        "relayed, server 1000 Mbit/s", "direct, server 1000 Mbit/s", "relayed, server 10 Mbit/s",
        "direct, server 10 Mbit/s",
    ]  # fmt: skip
    dots = [
        [(round(float(y)), float(x)) for line in axes.lines for x, y in [line.get_xydata()[0]]]  # type: ignore[index]
        for axes in figure.axes
    ]
    assert {(row, 10.0 * row + j) for row in range(4) for j in (0, 1)} <= set(dots[0])
    assert {(row, 40 + 10.0 * row + j) for row in range(4) for j in (0, 1)} <= set(dots[1])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["secagg", "lightsecagg"]


def means(folder: Path, *values: str) -> Path:
    lines = ["point,network.peers,protocol,measure,phase,seeds,mean,half_95"]
    measures = ("total_s", "per_aggregate_s")  # whichever is the headline
    lines += [f"{k},{v},secagg,{m},,1,{k + 1}.0," for k, v in enumerate(values) for m in measures]
    (folder / "means.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_a_sweep_over_words_has_this_figure(tmp_path: Path) -> None:
    assert list(of_sweep(means(tmp_path, "relayed", "direct"))) == ["categories"]
    assert list(of_sweep(means(tmp_path, "1", "2"))) == ["total"]
    with pytest.raises(BadInput, match="no number varies"):
        of_sweep(means(tmp_path, "relayed"))
