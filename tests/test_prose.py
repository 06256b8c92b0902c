"""The house style of docstrings and of tests' names, as far as a machine can hold it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PRODUCT = sorted((ROOT / "simfl").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
QUESTION = re.compile(r"(What|Whether|Who|Whom|Whose|How|Where|When|Why|Which|That)\b")
"""A question turned into a definition: a docstring begins with a verb or with a noun phrase instead."""

Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """The names of what is defined in a file, each with its docstring; of fields and constants, the line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield f"line {node.lineno}", node.value.value
        if isinstance(node, Definition) and (text := ast.get_docstring(node)):
            yield getattr(node, "name", "the module"), text


@pytest.mark.ci
def test_no_docstring_begins_with_a_question() -> None:
    found = [(path.relative_to(ROOT), *each) for path in PRODUCT for each in docstrings(path)]
    assert [one for one in found if QUESTION.match(one[-1])] == []


def test_names_of_tests_are_at_most_60_characters() -> None:
    names = re.compile(r"^ *(?:async )?def (test_\w{56,})\(", re.MULTILINE)
    assert [name for path in TESTS for name in names.findall(path.read_text(encoding="utf-8"))] == []
