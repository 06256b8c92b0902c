"""The page of a comparison as a browser shows it: any width, both colour schemes, keys, no request."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from simfl.studies.compared import compare
from simfl.studies.comparison.page import page
from tests.reports.test_chart import luminance
from tests.reports.test_compare import comparison
from tests.reports.test_page import EVIL
from tests.reports.test_terminal import round_, summary


@pytest.fixture(scope="module")
def files(folders: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    rounds = [round_(k, accuracy=0.5 + k / 10) for k in range(3)]
    evil = comparison(*[summary({"0": 2, "40": 1}, **{EVIL: rounds, "x" * 90: rounds})] * 3)
    pages = {
        "runs": page(compare(folders / "base", folders / "repeats", folders / "lossy")),
        "sweeps": page(compare(folders / "narrow", folders / "wide")),
        "evil": page(evil),
    }
    root = tmp_path_factory.mktemp("pages")
    for name, text in pages.items():
        (root / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: root / f"{name}.html" for name in pages}


VIEWS = list(product(("runs", "sweeps", "evil"), (400, 1600), ("light", "dark")))
FIRST = {("runs", 1600, "dark"), ("sweeps", 400, "dark"), ("evil", 400, "light")}


@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [pytest.param(*view, marks=[] if view in FIRST else pytest.mark.slow) for view in VIEWS],
)
def test_it_opens_in_any_width_and_scheme(show: Any, name: str, width: int, scheme: str) -> None:
    tab = show(name, width, color_scheme=scheme)
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    colours = tab.evaluate(
        "['paper', 'ink', 'soft'].map(n => getComputedStyle(document.documentElement)"
        ".getPropertyValue('--' + n).trim())"
    )
    paper, *texts = (luminance(colour) + 0.05 for colour in colours)
    assert (paper > 0.5) == (scheme == "light")
    for text in texts:
        assert max(text, paper) / min(text, paper) > 4.5  # WCAG 2 AA
    if name == "evil":
        assert tab.locator("#critical h3").first.inner_text() == EVIL


@pytest.mark.ci
def test_everything_can_be_reached_by_tab(show: Any) -> None:
    tab = show("evil", 400)
    reached = set()
    for _ in range(60):
        tab.keyboard.press("Tab")
        reached.add(tab.evaluate("(e => e.getAttribute('aria-label') || e.tagName)(document.activeElement)"))
    wanted = {"Headline numbers", "Bytes", f"Staleness of {EVIL}", "A", "SUMMARY"}
    assert wanted <= reached


@pytest.mark.ci
def test_the_keyboard_opens_all_figures(show: Any) -> None:
    tab = show("runs")
    tab.locator("#figures summary").first.focus()
    tab.keyboard.press("Enter")
    assert tab.locator("#figures table").first.is_visible()
    assert not tab.locator("#figures table").last.is_visible()


@pytest.mark.ci
def test_each_chart_has_a_list_of_its_accuracies(show: Any) -> None:
    tab = show("evil")
    charts = tab.locator("#accuracy figure")
    assert charts.count() == 2
    before = tab.locator("#accuracy .value").all_inner_texts()
    area = charts.last.locator(".plotarea")
    area.evaluate("e => e.scrollIntoView({block: 'center'})")
    box = area.bounding_box()
    tab.mouse.move(box["x"] + 1, box["y"] + 50)
    assert charts.last.locator(".value").all_inner_texts() == ["–"] * 3
    assert charts.first.locator(".value").all_inner_texts() == before[:3]
    tab.mouse.move(2, 2)
    assert tab.locator("#accuracy .value").all_inner_texts() == before
