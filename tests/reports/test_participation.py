"""The page's section on those who took part: the terminal's columns, and T over the rounds."""

from __future__ import annotations

import pytest

from simfl.reports.folder import Run
from simfl.reports.page import page
from simfl.reports.participation import participation, steps
from simfl.runs.results.columns import at
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


def test_the_section_has_the_columns_of_the_terminal(batches: Run) -> None:
    found = participation(batches)
    assert found is not None
    protocols = batches.summary.protocols
    columns = at("seeds", protocols.values())
    assert found["headings"] == [column.seeds for column in columns] != []
    for row in found["rows"]:
        p = protocols[row["name"]]
        assert row["cells"] == [column.over_seeds([p]) for column in columns]
        assert p.participation is not None
        assert row["T"] == ([T and T[0] for T in p.participation.T_weak], p.participation.T_strong)
        assert found["most"] == 4 >= max(row["T"][0])
        assert row["sets"] == "3"  # two of three pairs


def test_the_page_says_what_T_F_and_C_are(batches: Run, losing: Run) -> None:
    text = page(batches)
    data = read(text).data
    assert {"T, multi-round privacy", "F, fairness gap", "C, cardinality"} <= set(data["dt"])
    assert 'href="#participation"' in text
    assert 'id="participation"' not in page(losing)  # everybody is selected


def test_an_absurd_number_of_sets_is_told_in_powers_of_ten(batches: Run) -> None:
    entry = batches.summary.protocols["fedavg"]
    assert entry.participation is not None
    for family, says in ((10**400, "1.0e+400"), (9_999_999, "9999999"), (None, "–")):
        facts = entry.participation.model_copy(update={"family": family})
        summary = batches.summary.model_copy(
            update={"protocols": {"fedavg": entry.model_copy(update={"participation": facts})}}
        )
        found = participation(Run(**{**vars(batches), "summary": summary}))
        assert found is not None
        assert found["rows"][0]["sets"] == says


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
