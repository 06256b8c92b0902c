"""Text from files on terminals and in spreadsheets."""

from __future__ import annotations

import csv
from io import StringIO

import pytest

from simfl.trace.text import printable, shown, write_csv


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain\nmore", "plain\nmore"),
        ("é ± 4 – ∑ 漢", "é ± 4 – ∑ 漢"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("a\rb\tc\u2028d\u00a0e", "a b c d e"),
        ("\x9b31m\x7f\x00", r"\x9b31m\x7f\x00"),
        ("\u202eevil\u200b", r"\u202eevil\u200b"),
        ("\ud800", r"\ud800"),
    ],
)
def test_control_characters_are_spelled_out(text: str, expected: str) -> None:
    assert printable(text) == expected
    assert printable(text).encode()


def test_long_and_deep_values_are_shortened() -> None:
    deep: list[object] = []
    for _ in range(900):
        deep = [deep]
    for value in ("x" * 10**6, [1] * 10**6, {str(k): k for k in range(10**4)}, deep, 10**4000):
        assert len(shown(value)) < 100
    assert shown("short") == "'short'"


@pytest.mark.parametrize(
    "cell", ["=1+1", "@SUM(A1)", "+1+cmd|' /C calc'!A0", "-2+3", "\t=1", "\r=1", "-", "=x,y"]
)
def test_formulas_are_text_in_a_table(cell: str) -> None:
    file = StringIO()
    write_csv(file, [[cell, "after"]])
    assert list(csv.reader(StringIO(file.getvalue()))) == [[f"'{cell}", "after"]]


@pytest.mark.parametrize(
    "cell", ["", "x=1", "-1", "+2.5", "-1e-09", "1.000000000", -3, 0.5, "a-b", "server", None]
)
def test_numbers_and_names_are_left_as_they_are(cell: object) -> None:
    file = StringIO()
    write_csv(file, [[cell, "after"]])
    assert file.getvalue() == f"{'' if cell is None else cell},after\r\n"
