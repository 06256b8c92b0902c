"""Pages on time: diagrams are those of traces, names those of the engine; the example prints its lines."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.tools import sequence
from tests.docs.pages import ROOT, blocks

ENGINE = ROOT / "simfl" / "engine"
PAGE = ROOT / "docs" / "how_time_works.md"
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
WALK = re.findall(
    r"^\| `(\w+\.py)` \| (.*) \|$",
    ARCHITECTURE.partition("### One user's round")[2].partition("\n### ")[0],
    re.M,
)
"""(file, text) of each line of the walk through the engine."""


def defined(path: Path) -> set[str]:
    """Return the names of all functions and classes of a file, methods with their class too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    methods = {f"{node.name}.{each.name}" for node in classes for each in node.body if each in functions}
    return {node.name for node in (*classes, *functions)} | methods


@pytest.mark.parametrize("name", sequence.DIAGRAMS)
def test_a_diagram_is_that_of_its_trace(name: str) -> None:
    """`python -m docs.tools.sequence` writes it anew where the engine changed on purpose."""
    assert sequence.between(name)[2] == sequence.DIAGRAMS[name]()


def test_names_of_the_walk_are_those_of_its_files() -> None:
    """Ten files at most take a user from its selection to the aggregate."""
    assert 5 < len(WALK) <= 10
    unknown = {file: set(re.findall(r"`(\w+)`", text)) - defined(ENGINE / file) for file, text in WALK}
    assert not {file: names for file, names in unknown.items() if names}


def lives() -> Iterator[tuple[str, str]]:
    """Yield the generator that each call of `Life` in the engine runs, with its file."""
    for path in ENGINE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Life":
                assert isinstance(node.args[1], ast.Call)
                assert isinstance(node.args[1].func, ast.Attribute)
                yield node.args[1].func.attr, path.name


def test_the_table_of_lives_is_that_of_the_engine() -> None:
    table = ARCHITECTURE.partition("| life | its generator |")[2].partition("\n\n")[0]
    listed = {
        (name, file)
        for name, files in re.findall(r"`(?:\w+\.)?(\w+)` in ((?:`\w+\.py`(?:, )?)+)", table)
        for file in re.findall(r"\w+\.py", files)
    }
    # `ServerSide` begins the life whose generator rounds and buffers define.
    mains = {("main", "rounds.py"), ("main", "buffered.py")}
    assert listed == set(lives()) - {("main", "server_side.py")} | mains


def test_the_example_prints_the_lines_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    [example], [lines] = blocks(PAGE, "python"), blocks(PAGE, "text")
    exec(compile(example.text, PAGE.name, "exec"), {})
    assert capsys.readouterr().out == lines.text
