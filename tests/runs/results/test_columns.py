"""A column is read, written and shown as its entry says; a new one is that entry."""

from __future__ import annotations

import re
from dataclasses import fields
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from docs.tools import outputs
from simfl.reports.model import run_report
from simfl.reports.page import page
from simfl.reports.tables import latex
from simfl.reports.terminal import show
from simfl.runs.results import columns
from simfl.runs.results.columns import COLUMNS, Column, column, columns_of
from simfl.runs.results.summary import ProtocolSummary
from simfl.studies.comparison import page as compare_page
from simfl.studies.comparison.cases import Case, Comparison, Side
from simfl.studies.comparison.report import comparison_report
from simfl.studies.sweep import page as sweep_page
from simfl.studies.sweep import tables
from simfl.studies.sweep.picture import picture
from tests.engine.harness import SIX, SYNC, run, script
from tests.reports.conftest import opened
from tests.studies.sweep.small import study, swept

NEW = Column(
    "longest_s",
    "mean",
    lambda p: [max(r.total_s for r in p.rounds)],
    {"run": "longest round", "headline": "Longest", "latex": "Longest", "sweep": "longest"},
)
"""The longest round, an entry that is all that there is of it."""


@pytest.fixture(scope="module")
def entry() -> ProtocolSummary:
    """Two rounds of six users, the second aborted: four are lost."""
    lost = script(*((user, 1, "shares", "before_send") for user in range(4)))
    changes = {**SIX, "protocols": ["lightsecagg"], "rounds": 2, "dropout": lost}
    return run(changes).summarised().protocols["lightsecagg"]


def test_measures_name_columns_once() -> None:
    measures = [c.measure for c in COLUMNS]
    assert len(set(measures)) == len(measures)


def test_figures_by_hand(entry: ProtocolSummary) -> None:
    first, second = entry.rounds
    assert (first.completed, second.completed) == (True, False)
    assert column("total_s").number(entry) == first.end_s - first.start_s == entry.mean.total_s
    assert column("total_s").text(entry) == f"{first.end_s - first.start_s:.3f}"
    assert column("span_s", "upload").number(entry) == first.span_s.upload
    assert column("per_aggregate_s").number(entry) == pytest.approx(second.end_s - first.start_s)
    assert column("failed_s").number(entry) == pytest.approx(second.end_s - second.start_s)
    assert column("critical_s", "offline").number(entry) == pytest.approx(
        first.critical_s.offline + second.critical_s.offline
    )
    assert column("bytes_up").number(entry) == first.bytes_up + second.bytes_up
    assert column("user_bytes_up").number(entry) == (first.bytes_up + second.bytes_up) / 12
    assert (column("completed").number(entry), column("completed").text(entry)) == (1, "1 of 2")
    assert (column("exact").number(entry), column("exact").text(entry)) == (1, "1 of 1")
    assert (column("survivors").number(entry), column("survivors").text(entry)) == (6, "6")
    assert column("users_lost").text(entry) == str(second.lost) == "4"


def test_nothing_is_no_number(entry: ProtocolSummary) -> None:
    nothing = entry.model_copy(update={"rounds": [], "final_accuracy": None})
    assert column("total_s").number(nothing) is None
    assert column("accuracy").text(nothing) == ""
    assert column("completed").text(nothing) == "0 of 0"
    assert column("exact").text(nothing) == ""


def test_a_range_has_two_ends(entry: ProtocolSummary) -> None:
    rounds = [entry.rounds[0].model_copy(update={"survivors": n}) for n in (5, 3, 4)]
    assert (
        column("survivors").text(
            entry.model_copy(update={"rounds": rounds}),
        )
        == "3 - 5"
    )


def test_faults(entry: ProtocolSummary) -> None:
    assert column("completed").wrong(entry)
    assert column("aborted").wrong(entry)
    assert not column("exact").wrong(entry)
    assert not column("refused").wrong(entry)
    assert not column("users_lost").wrong(entry)


def test_staleness_is_of_asynchronous_runs(entry: ProtocolSummary) -> None:
    stale = entry.model_copy(update={"staleness": {"0": 1, "2": 3}})
    assert not {"staleness", "discarded_stale"} & {c.key for c in columns_of("run", [entry])}
    assert {"staleness", "discarded_stale"} <= {c.key for c in columns_of("run", [entry, stale])}
    assert column("staleness").text(stale) == "1.50"


def test_surplus_is_of_runs_that_over_select(entry: ProtocolSummary) -> None:
    assert "surplus" not in {c.key for place in ("run", "losses", "csv") for c in columns_of(place, [entry])}
    over = entry.model_copy(update={"selection": {"kind": "random", "users": 4, "over": 1.5}})
    for place in ("run", "losses", "csv"):
        assert "surplus" in {c.key for c in columns_of(place, [entry, over])}
    told = over.model_copy(update={"rounds": [r.model_copy(update={"surplus": 2}) for r in over.rounds]})
    assert column("surplus").text(told) == str(2 * len(over.rounds))
    assert told.rounds[0].lost == over.rounds[0].lost


def test_an_entry_is_a_column_of_all_renderings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "COLUMNS", (NEW, *columns.COLUMNS))
    assert len(fields(Column)) <= 8
    result = run({**SYNC, "payload": "shadow", "protocols": ["fedavg"]}, out=tmp_path / "run")
    (p,) = result.protocols.values()
    text = NEW.text(p)
    assert float(text) > 0
    console = Console(file=StringIO(), width=80)
    show(console, run_report([result.summarised()], "plain"))
    case = Case.of_runs([p], noisy=False)
    sides = [Side(name, name, "run", "", {}, {("", "fedavg"): case}) for name in "ab"]
    show(console, comparison_report(Comparison(sides)))
    assert isinstance(console.file, StringIO)
    assert re.findall(r"longest round +│ +(\S+)", console.file.getvalue()) == [text] * 2
    made = page(opened(tmp_path / "run"))
    assert ">Longest</th>" in made
    assert f">{text}</td>" in made
    assert "longest round</th>" in compare_page.page(Comparison(sides))
    table = latex(opened(tmp_path / "run"))
    assert "& Longest" in table
    assert f"& {text}" in table
    notebook = result._repr_html_()
    assert "longest round</th>" in notebook
    assert f">{text}</td>" in notebook
    sweep = swept(study(tmp_path), tmp_path / "sweep")
    assert "longest_s" in {row.measure for row in tables.rows(sweep)}
    assert "longest round, s" in sweep_page.page(picture(sweep))
    assert "| `longest_s` |  | s | longest round |" in outputs.markdown()
