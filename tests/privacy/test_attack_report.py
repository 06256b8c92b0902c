"""An attack's figure and file: PNGs that decode to their pixels, well-formed SVG, null for no number."""

from __future__ import annotations

import json
import struct
import zlib
from xml.etree import ElementTree

import numpy as np
import pytest

from simfl.privacy.attack_report import png, record, svg, table, window_lines
from simfl.privacy.attacks.attack import Bars, Finding, Outcome, Strip
from simfl.privacy.attacks.least_squares import LeastSquares
from simfl.privacy.least_squares import WindowResult

OUTCOME = Outcome(
    (Finding("a<b", "sums", {"mean": 0.5, "gone": float("nan")}), Finding("b", "uploads", {"psnr": 40.0})),
    (Strip("images & more", np.random.default_rng(0).random((11, 4, 3)), tuple(map(str, range(11)))),),
    (Bars("users", ("low", "high"), {"members": (3, 0), "others": (1, 2)}),),
)


@pytest.mark.parametrize("shape", [(4, 3), (2, 5, 3)])
def test_a_png_decodes_to_its_pixels(shape: tuple[int, ...]) -> None:
    image = np.random.default_rng(1).random(shape)
    content, at, chunks = png(image), 8, {}
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    while at < len(content):
        (length,) = struct.unpack(">I", content[at : at + 4])
        kind, data = content[at + 4 : at + 8], content[at + 8 : at + 8 + length]
        assert struct.unpack(">I", content[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + data)
        chunks[kind] = data
        at += 12 + length
    wide, high, depth, colour, *_ = struct.unpack(">2I5B", chunks[b"IHDR"])
    assert (high, wide, depth, colour) == (*shape[:2], 8, 2 if len(shape) == 3 else 0)
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(high, -1)
    assert (lines[:, 0] == 0).all()
    np.testing.assert_array_equal(lines[:, 1:].reshape(shape), np.rint(image * 255))


def test_the_figure_is_whole_and_within_its_frame() -> None:
    root = ElementTree.fromstring(svg("it", OUTCOME))
    wide, high = float(root.get("width", 0)), float(root.get("height", 0))
    names = [element.tag.rpartition("}")[2] for element in root.iter()]
    assert names.count("image") == 11
    assert "images & more" in [element.text for element in root.iter()]
    for element in root.iter():
        if element.tag.endswith(("image", "text")):
            assert 0 <= float(element.get("x", 0)) < wide
            assert 0 < float(element.get("y", 0)) < high
    assert svg("it", OUTCOME) == svg("it", OUTCOME)


def test_no_number_is_null_and_a_dash() -> None:
    content = record(LeastSquares(), OUTCOME, "s", 3)
    assert json.loads(json.dumps(content, allow_nan=False))["findings"][0]["gone"] is None
    found = table(OUTCOME)
    assert [column.header for column in found.columns] == ["entry", "attacked", "mean", "gone", "psnr"]
    assert list(found.columns[3].cells) == ["-", "-"]


def test_originals_of_several_entries_are_shown_once() -> None:
    both = OUTCOME + OUTCOME
    assert (len(both.findings), len(both.strips)) == (4, 1)


# --- a window of rounds -------------------------------------------------------------------
def windowed(
    errors: list[float], alone: tuple[int, ...], groups: tuple[tuple[int, ...], ...]
) -> WindowResult:
    return WindowResult(3, 9, 7, 2, np.array(errors), alone, groups)


def test_window_lines_count_errors_and_name_isolated_users() -> None:
    page = list(window_lines("secagg", windowed([0.0005, 0.02, 0.04, 2.0, np.nan], (1,), ((2, 3),))))
    assert page[0] == "secagg: rounds 3 to 9, 7 aggregates over 4 of 5 users, rank 2"
    assert "mean 0.5151, median 0.03, least 0.0005, most 2" in page[2]
    counts = {line.split("..")[0].strip(): line.split()[3] for line in page[3:11]}
    assert counts["0"] == counts["1"] == "1"
    assert counts["0.01"] == "2"
    assert counts["0.1"] == "0"
    assert page[5].count("█") == 40  # the fullest bin
    assert page[11] == "  isolated by their participation alone: 1 user (1)"
    assert page[12] == "  sums that can be isolated: 1 group of 2 users"
    assert max(map(len, page)) <= 80


def test_window_lines_without_isolated_users() -> None:
    page = list(window_lines("x", windowed([0.5], (), ((0, 1), (2, 3, 4)))))
    assert page[-2] == "  no user can be isolated by participation alone"
    assert page[-1] == "  sums that can be isolated: 2 groups of 2 to 3 users"


def test_window_lines_name_six_users_at_most() -> None:
    (line,) = [
        line for line in window_lines("x", windowed([0.5], tuple(range(40)), ())) if "isolated" in line
    ]
    assert line.endswith("40 users (0, 1, 2, 3, 4, 5 and 34 more)")
