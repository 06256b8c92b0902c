"""The tiers of the suite: what each command runs, and which cases a mark leaves out of `make test`."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sizes import left_to_ci

ROOT = Path(__file__).parents[1]


def test_each_command_has_its_tier() -> None:
    """CI runs all but what is slow; no target takes a mark away from the tier above it."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipes = dict(re.findall(r"^(test[a-z-]*):.*\n\t(.*pytest.*)$", makefile, re.M))
    command = "$(BIN)/python -m pytest -n auto --dist loadfile"
    assert recipes == {
        "test": command,
        "test-ci": f"TIER=ci {command}",
        "test-all": f'TIER=all {command} -m ""',
    }
    assert re.search("^make test-ci\\b", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.M)


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
