"""An asynchronous run whose aggregations all abort is told as an asynchronous run."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import simfl
from simfl.reports import terminal
from simfl.reports.advice import advise
from simfl.reports.folder import Run
from simfl.reports.model import run_report
from simfl.reports.page import page
from simfl.reports.tables import latex
from simfl.runs.results import metrics
from tests.golden.cases import scenario
from tests.reports.conftest import opened

NAME = "lightsecagg_async"


@pytest.fixture(scope="module")
def aborted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Every recovery comes after its deadline."""
    folder: Path = tmp_path_factory.mktemp("aborted")
    case = scenario("buffers/all_aborted", {"payload": "shadow", "protocols": [NAME], "rounds": 3})
    simfl.run(case, out=folder)
    return opened(folder)


def test_terminal_page_and_latex_speak_of_aggregations(aborted: Run) -> None:
    console = Console(file=StringIO(), width=80)
    terminal.show(console, run_report([aborted.summary], aborted.scenario.profile))
    assert isinstance(console.file, StringIO)
    shown = console.file.getvalue()
    assert "completed aggregations" in " ".join(shown.split())
    assert "3 of 3 aggregations failed" in shown
    assert "mean staleness" in shown
    assert "skipped\n  aggregations count" in page(aborted)
    assert "per completed aggregation" in latex(aborted)


def test_it_is_advised_as_one_path_of_aborted_aggregations(aborted: Run) -> None:
    trace, rounds = aborted.traces[NAME], aborted.rounds[NAME]
    found = advise(trace, rounds)
    assert found.aggregates == 0
    assert found.sentence.endswith(" in all, for no aggregate.")
    assert found.total_ns == sum(metrics.run_path(trace, rounds).values()) == rounds[-1].end
