"""Which cases a mark leaves out of `make test`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.sizes import left_to_ci


def cases(*names: str, **words: list[str]) -> list[Any]:
    mark = pytest.mark.ci(**words).mark
    return [SimpleNamespace(name=name, path="a file", iter_markers=lambda _: [mark]) for name in names]


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
    assert [item.name for item in left_to_ci(cases("test_x[a-1]", "test_x[b-1]", **words))] == left


def test_a_word_that_no_case_has_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match=r"no case has it.*'c'"):
        left_to_ci(cases("test_a[a]", "test_a[b]", but=["a", "c"]))
