"""Which cases a mark leaves out of `make test`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.sizes import CASES, left_to_ci


def cases(*names: str, marks: tuple[Any, ...] = ()) -> list[Any]:
    def of(kind: str) -> list[Any]:
        return [mark for mark in marks if mark.name == kind]

    return [
        SimpleNamespace(name=name, path="a file", iter_markers=of, get_closest_marker=of) for name in names
    ]


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ({}, ["test_x[a-1]", "test_x[b-1]"]),
        ({"but": ["a-"]}, ["test_x[b-1]"]),
        ({"only": ["a-"]}, ["test_x[a-1]"]),
        ({"but": ["1"]}, []),
    ],
)
def test_a_mark_leaves_cases_to_ci(words: dict[str, list[str]], left: list[str]) -> None:
    mark = pytest.mark.ci(**words).mark
    assert [item.name for item in left_to_ci(cases("test_x[a-1]", "test_x[b-1]", marks=(mark,)))] == left


def test_a_word_that_no_case_has_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match=r"no case has it.*'c'"):
        left_to_ci(cases("test_a[a]", "test_a[b]", marks=(pytest.mark.ci(but=["a", "c"]).mark,)))


@pytest.mark.parametrize(("marks", "left"), [((), 2 * CASES), ((pytest.mark.each.mark,), 0)])
def test_most_of_many_cases_are_left_to_ci(marks: tuple[Any, ...], left: int) -> None:
    """Of 24 cases every third is run."""
    out = [item.name for item in left_to_ci(cases(*(f"test_x[{k}]" for k in range(3 * CASES)), marks=marks))]
    assert len(out) == left
    assert not {"test_x[0]", "test_x[3]"} & set(out)
