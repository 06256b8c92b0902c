"""The page's section on those who took part: the terminal's columns, and T over the rounds."""

from __future__ import annotations

import pytest

from simfl.reports.folder import Run
from simfl.reports.model import run_report
from simfl.reports.page import page, participation, steps
from simfl.runs.results.columns import columns_of
from tests.engine.harness import SIX, run
from tests.reports.conftest import opened
from tests.reports.test_page import read


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Pairs of six users, four of whom take part in a round."""
    folder = tmp_path_factory.mktemp("batches")
    chosen = {"selection": {"kind": "multi_round", "users": 4, "T": 2}, "privacy": {"T": 1, "D": 1, "U": 3}}
    run({**SIX, **chosen, "rounds": 4, "protocols": ["fedavg", "lightsecagg"]}, out=folder)
    return opened(folder)


def test_the_section_has_the_table_of_the_terminal(batches: Run) -> None:
    found = participation(batches, run_report([batches.summary], "plain"))
    assert found is not None
    protocols = batches.summary.protocols
    listed = columns_of("seeds", protocols.values())
    assert [row.label for row in found["table"].rows] == [c.headings["seeds"] for c in listed]
    assert found["table"].names == list(protocols)
    for k, p in enumerate(protocols.values()):
        cells = [row.cells[k].text for row in found["table"].rows]
        assert cells == [c.over_seeds([p]) for c in listed]
        assert p.participation is not None
        weak, strong = found["curves"][k]
        assert (weak, strong) == ([T and T[0] for T in p.participation.T_weak], p.participation.T_strong)
        assert found["most"] == 4 >= max(weak)
    assert found["sets"] == ["Sets to choose from (eq. 8): fedavg 3, lightsecagg 3"]  # two of three pairs


def test_the_page_defines_T_F_and_C(batches: Run, losing: Run) -> None:
    text = page(batches)
    data = read(text).data
    assert {"T, multi-round privacy", "F, fairness gap", "C, cardinality"} <= set(data["dt"])
    assert 'href="#participation"' in text
    assert 'id="participation"' not in page(losing)  # everybody is selected


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ([], ""),
        ([None, None], ""),
        ([2, 2, 2], "M0 1H3"),
        ([None, 3, 1], "M1 0H2V2H3"),
        ([3, None, None, 2], "M0 0H1M3 1H4"),
    ],
)
def test_a_step_curve_goes_through_its_values(values: list[int | None], path: str) -> None:
    assert steps(values, 3) == path
