"""The table for a paper: LaTeX takes it, and its numbers are the summary's."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import fmean

import pytest

from simfl.cli import main
from simfl.reports.folder import Run
from simfl.reports.tables import escape, latex
from simfl.trace.rows import PHASES
from tests.engine.harness import SIX, run
from tests.reports.conftest import opened, renamed

SHADOW = {"payload": "shadow", "learning.dataset": {"kind": "synthetic", "train": 60, "test": 20}}


@pytest.fixture(scope="module")
def rates(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Four rounds at two drop-out rates in turn, nothing executed, so no accuracy."""
    folder = tmp_path_factory.mktemp("rates")
    run({**SIX, **SHADOW, "rounds": 4, "dropout.rate": [0.0, 0.2]}, out=folder)
    return opened(folder)


def cells(text: str) -> list[list[str]]:
    """The rows of the body."""
    body = text.split("\\midrule\n")[1].split("\\bottomrule")[0]
    rows = [line for line in body.splitlines() if line != r"\addlinespace"]
    return [[cell.strip() for cell in re.split(r"(?<!\\)&", line[:-2])] for line in rows]


def header(text: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.startswith("Protocol"))
    return [cell.strip() for cell in line[:-2].split("&")]


def test_special_characters_of_latex_are_escaped() -> None:
    assert escape("secagg_plus") == r"secagg\_plus"
    assert escape(r"\a{b}$c&d#e%f^g~h") == (
        r"\textbackslash{}a\{b\}\$c\&d\#e\%f\textasciicircum{}g\textasciitilde{}h"
    )
    assert escape("<|>") == r"\textless{}\textbar{}\textgreater{}"
    assert escape("a\nb\x07c ü") == "a b c ü"


def test_rows_are_means_of_a_protocol_at_a_rate(rates: Run) -> None:
    text = latex(rates)
    spans = (phase.capitalize() for phase in PHASES)
    assert header(text) == ["Protocol", "Lost", "Per aggregate", *spans, "Total", "Up", "Down"]
    found = cells(text)
    assert [row[:2] for row in found] == [
        ["fedavg", r"0\%"], ["", r"20\%"], ["secagg", r"0\%"], ["", r"20\%"], ["lightsecagg", r"0\%"],
        ["", r"20\%"],
    ]  # fmt: skip
    for number, row in enumerate(found):
        name, rate = list(rates.traces)[number // 2], (0.0, 0.2)[number % 2]
        rounds = [r for r in rates.summary.protocols[name].rounds if r.dropout_rate == rate]
        assert len(rounds) == 2
        spans = [fmean(r.span_s[phase] for r in rounds) for phase in PHASES]
        total = fmean(r.end_s - r.start_s for r in rounds)
        moved = [fmean(getattr(r, key) for r in rounds) / 1e6 for key in ("bytes_up", "bytes_down")]
        assert row[2:] == [f"{value:.3f}" for value in (total, *spans, total, *moved)]


def test_protocols_of_several_rows_are_set_apart(rates: Run, buffered: Run) -> None:
    body = latex(rates).split("\\midrule\n")[1].splitlines()
    assert [place for place, line in enumerate(body) if line == r"\addlinespace"] == [2, 5]
    assert "addlinespace" not in latex(buffered)


def test_as_many_columns_as_are_announced(rates: Run, losing: Run, buffered: Run) -> None:
    for some in (rates, losing, buffered):
        text = latex(some)
        spec = re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)
        assert spec is not None
        wide = len(spec[1])
        assert {len(row) for row in [header(text), *cells(text)]} == {wide}
        grouped = next(line for line in text.splitlines() if "multicolumn" in line)
        spans = sum(int(count) - 1 for count in re.findall(r"multicolumn\{(\d+)\}", grouped))
        assert grouped.count("&") + 1 + spans == wide
        rules = [tuple(map(int, pair)) for pair in re.findall(r"\(lr\)\{(\d+)-(\d+)\}", text)]
        first = header(text).index("Offline") + 1
        start = header(text).index("Per aggregate") + 1
        assert rules == [(start, first - 1), (first, first + 4), (first + 5, first + 6)]


def test_the_accuracy_is_the_last_one(losing: Run) -> None:
    text = latex(losing)
    assert header(text)[-1] == "Final accuracy"
    known = {name: entry.final_accuracy for name, entry in losing.summary.protocols.items()}
    assert {row[0]: row[-1] for row in cells(text) if row[0]} == {
        name: f"{value:.4f}" for name, value in known.items()
    }


def test_the_command_prints_the_table_and_does_nothing_else(
    rates: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.name for path in rates.folder.iterdir())
    with pytest.raises(SystemExit) as left:
        main(["report", str(rates.folder), "--latex"])
    out, errors = capsys.readouterr()
    assert (left.value.code, out, errors) == (0, latex(rates), "")
    assert sorted(path.name for path in rates.folder.iterdir()) == before


@pytest.mark.parametrize("more", ["--figures", "--rounds=0:1"])
def test_a_table_goes_with_nothing_else(more: str, rates: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["report", str(rates.folder), "--latex", more])
    out, errors = capsys.readouterr()
    assert (left.value.code, out) == (2, "")
    assert "--latex" in errors


def test_names_are_escaped_in_the_table(tmp_path: Path) -> None:
    run({**SHADOW, "protocols": ["fedavg"]}, out=tmp_path)
    text = latex(renamed(opened(tmp_path), "a_b & 50%", "x\n\\input{y}"))
    assert cells(text)[0][0] == r"a\_b \& 50\%"
    assert text.splitlines()[0].startswith(r"% x \textbackslash{}input\{y\}; ")
