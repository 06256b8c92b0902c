"""Pages on time: diagrams are those of traces, names those of the engine; the example prints its lines."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from docs.tools import sequence
from simfl.trace.rows import Aggregated, Sent, Step, TimerSet
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


def test_a_diagram_has_each_kind_of_row_in_order() -> None:
    """One user: it trains for 3 ms while a message of 10 ms is on its way, and the server has a deadline."""
    trace = sequence.Trace()
    trace.add(Sent(0, -1, 4, "model", "training", "", 8, 8, -1, 0, 10_000_000))
    trace.add(Step(0, 4, "training", "train", "", "", 0, -1, 0, 5_000_000, 8_000_000, ()))
    trace.add(Sent(0, 4, -1, "upload", "upload", "", 8, 8, 1, 8_000_000, 9_000_000))
    trace.add(TimerSet(0, "upload", "upload", "", -1, 2_000_000, 30_000_000))
    trace.add(Step(0, -1, "protocol", "receive", "upload", "", 2, -1, 0, 9_000_000, 9_500_000, ()))
    trace.add(Step(0, -1, "protocol", "receive", "note", "", -1, -1, 0, 9_000_000, 9_500_000, ()))
    trace.add(Aggregated(0, ((4, "", 0),), 0, 9_500_000))
    words = [line.split() for line in sequence.drawn(sequence.lines(trace, 4, "")).splitlines()]
    shown = [(start, end, [word for word in text if word.isalnum()]) for start, end, *text in words[1:]]
    assert shown == [
        ("0.000", "10.000", ["model"]),
        ("2.000", "30.000", ["deadline", "upload"]),
        ("5.000", "8.000", ["train"]),
        ("8.000", "9.000", ["upload"]),
        ("9.000", "9.500", ["receive", "upload"]),
        ("9.500", "9.500", ["aggregate", "users", "4"]),
    ]


def test_names_of_the_walk_are_those_of_its_files() -> None:
    """Ten files at most take a user from its selection to the aggregate."""
    assert 5 < len(WALK) <= 10
    unknown = {file: set(re.findall(r"`(\w+)`", text)) - defined(ENGINE / file) for file, text in WALK}
    assert not {file: names for file, names in unknown.items() if names}


def test_the_lives_of_the_table_are_in_their_files() -> None:
    table = ARCHITECTURE.partition("| life | its generator |")[2].partition("\n\n")[0]
    listed = [
        (name, file)
        for names, files in re.findall(r"((?:`[\w.]+`)) in ((?:`\w+\.py`(?:, )?)+)", table)
        for name in re.findall(r"[\w.]+", names)
        for file in re.findall(r"\w+\.py", files)
    ]
    assert len(listed) > 8
    assert [(name, file) for name, file in listed if name not in defined(ENGINE / file)] == []


def test_the_example_prints_the_lines_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    [example], [lines] = blocks(PAGE, "python"), blocks(PAGE, "text")
    exec(compile(example.text, PAGE.name, "exec"), {})
    assert capsys.readouterr().out == lines.text
