"""Classes and energy in the terminal and on the page."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from simfl.reports import page as page_module
from simfl.reports.folder import Run
from simfl.reports.model import run_report
from simfl.reports.page import class_table, energy, page
from simfl.reports.terminal import show
from simfl.runs.results import breakdown
from simfl.runs.results.breakdown import class_sections as sections
from simfl.runs.results.by_class import ClassSummary
from simfl.runs.results.summary import ProtocolSummary
from tests.engine.harness import run
from tests.reports.conftest import opened
from tests.reports.test_compare import comparison, told
from tests.runs.results.test_by_class import COUNTED, CUT, IN_ROUNDS

ONLY_LOSSES = {"in aggregates", "lost", "s on the path"}
OVER = {"selection": {"kind": "random", "users": 6, "over": 1.5}, "privacy": {"T": 1, "D": 4}}


def entries(**world: Any) -> dict[str, ProtocolSummary]:
    return run({**IN_ROUNDS, **world}).summarised().protocols


def labels(protocols: dict[str, ProtocolSummary]) -> set[str]:
    rows = sections({name: [p] for name, p in protocols.items()})
    return {row.label.strip() for section in rows for row in section[1:]}


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Three rounds of two classes, with joules and cut trainings."""
    folder = tmp_path_factory.mktemp("classes")
    run({**IN_ROUNDS, **COUNTED, **CUT}, out=folder)
    return opened(folder)


@pytest.mark.ci
def test_rows_without_content_are_left_out() -> None:
    assert labels(entries()) == ONLY_LOSSES
    assert labels(entries(**COUNTED)) == ONLY_LOSSES | {"J/user"}
    assert labels(entries(**CUT)) == ONLY_LOSSES | {"cut short"}
    assert labels(entries(**OVER)) == ONLY_LOSSES | {"surplus"}


def test_figures_of_a_hand_made_class() -> None:
    p = entries(**COUNTED)["fedavg"]
    assert p.energy is not None
    own = ClassSummary(
        users=4, invited=12, aggregated=6, partial=3, surplus=1, energy=p.energy,
        lost={"offline": 1, "training": 0, "upload": 2, "recovery": 0},
        waited_s={"offline": 0.0, "training": 1.0, "upload": 0.5, "recovery": 0.0},
    )  # fmt: skip
    shown = p.model_copy(update={"classes": {"a": own}})
    ((title, *rows),) = sections({"x": [shown], "twice": [shown, shown]})
    assert title.label == "a (4 users)"
    assert {row.label.strip(): [cell.text for cell in row.cells] for row in rows} == {
        "in aggregates": ["50 %"] * 2,
        "cut short": ["50 %"] * 2,
        "lost": ["25 %"] * 2,
        "surplus": ["8 %"] * 2,
        "J/user": [f"{p.energy.users_j / 12:.3f}"] * 2,
        "s on the path": ["0.500"] * 2,  # of three aggregates
    }
    found = class_table({"x": shown})
    assert found is not None
    assert found["phases"] == ["offline", "upload"]
    (row,) = found["groups"][0]["rows"]
    parts = [(part["phase"], part["at"], part["wide"]) for part in row["path"]]
    assert parts == [("training", 0.0, 66.667), ("upload", 66.667, 33.333)]
    assert (row["own"], row["cells"][-1]) == (own, "0.500")


def test_many_classes_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breakdown, "MAX_CLASSES", 1)
    monkeypatch.setattr(page_module, "MAX_CLASS_ROWS", 1)
    protocols = entries()
    first, last = sections({name: [p] for name, p in protocols.items()})
    assert first[0].label == "slow (4 users)"
    assert [row.label for row in last] == ["and 1 more classes"]
    found = class_table(protocols)
    assert found is not None
    assert {(len(group["rows"]), group["left_out"]) for group in found["groups"]} == {(1, 1)}


@pytest.mark.ci
@pytest.mark.parametrize("width", [30, 80, 200])
def test_the_terminal_shows_classes_at_any_width(counted: Run, width: int) -> None:
    text = StringIO()
    show(Console(file=text, width=width), run_report([counted.summary], "plain"))
    joules = [
        f"{c.energy.users_j / c.invited:.3f}"
        for p in counted.summary.protocols.values()
        for c in (p.classes or {}).values()
        if c.energy
    ]
    assert len(joules) == 6
    assert all(figure in text.getvalue() for figure in joules)


@pytest.mark.ci
def test_the_page_has_classes_and_energy(counted: Run) -> None:
    html, protocols = page(counted), counted.summary.protocols
    for anchor in ("classes", "energy"):
        assert html.count(f'href="#{anchor}"') == html.count(f'<section id="{anchor}"') == 1
    for p, stack in zip(protocols.values(), energy(protocols), strict=True):
        assert p.energy is not None
        assert stack["total"] == f"{p.energy.users_j / len(p.completed):.3f} J"
        assert stack["parts"][-1]["at"] + stack["parts"][-1]["wide"] == pytest.approx(stack["end"], abs=0.01)
        for joules in p.energy.sources.values():
            assert f">{joules / len(p.completed):.3f}</td>" in html


@pytest.mark.ci
def test_a_comparison_shows_classes() -> None:
    one, other = (run({**IN_ROUNDS, **over}).summary for over in ({}, OVER))
    said = told(comparison(one, other))
    assert said.count("slow (4 users)") == len(one["protocols"])
    assert "surplus" in said
