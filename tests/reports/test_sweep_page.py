"""A sweep's page in headless Chromium: it shows what the tables have, by mouse and keys, at 400 px."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simfl.studies.sweep.page import page
from simfl.studies.sweep.picture import Picture, by_circumstances, picture
from tests.reports.test_page import EVIL
from tests.studies.sweep.small import study, swept

GRID = {"dropout.rate": [0.0, 0.2], "detect": [{"disconnect": 0.5}, "timeout"]}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Picture:
    folder = tmp_path_factory.mktemp("page")
    return picture(swept(study(folder, grid=GRID), folder / "out"))


@pytest.fixture(scope="module")
def files(found: Picture, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    file = tmp_path_factory.mktemp("html") / "report.html"
    file.write_text(page(found), encoding="utf-8")
    return {"sweep": file}


@pytest.fixture
def tab(show: Any) -> Any:
    return show("sweep")


@pytest.mark.ci
def test_the_page_lists_the_front_and_the_best(found: Picture) -> None:
    html = page(found)
    fastest = min(e.mean("per_aggregate_s") or 9e9 for e in found.entries)
    assert f"{fastest:.3f}" in html
    assert 'href="points/rate=0.0,' in html


@pytest.mark.ci
def test_text_of_a_study_is_text(found: Picture) -> None:
    axes = tuple(replace(axis, label=EVIL) for axis in found.axes)
    html = page(replace(found, name=EVIL, axes=axes))
    assert EVIL not in html


def test_a_sweep_without_an_aggregate_has_a_page(found: Picture) -> None:
    html = page(replace(found, entries=(), measures=()))
    assert "No aggregate was made." in html
    assert "No measure differs." in html


@pytest.mark.ci
def test_a_dot_for_each_point_and_protocol(tab: Any, found: Picture) -> None:
    assert tab.locator("#sw-plot circle").count() == len(found.entries)
    assert tab.locator("#scatter circle").count() == len(found.entries)
    entry = found.entries[0]
    text = f"{entry.protocol}, {entry.label}: {entry.mean('per_aggregate_s'):.3f}"
    assert tab.locator("#sw-plot a").first.get_attribute("aria-label").startswith(text)


@pytest.mark.ci
def test_front_shows_one_point_for_each_choice(tab: Any, found: Picture) -> None:
    """Four worlds, of two drop-out rates and two ways to notice a loss, have a point for each protocol."""
    worlds = by_circumstances(found.entries)
    assert tab.locator("#fr-world option").all_inner_texts() == list(worlds)
    for where, entries in worlds.items():
        tab.select_option("#fr-world", label=where)
        assert tab.locator("#scatter circle:visible").count() == len(entries) == 2
        rows = tab.locator("#front tbody tr:visible td:last-child").all_inner_texts()
        assert {*rows} == {entry.label for entry in entries}


@pytest.mark.ci
def test_measure_and_axis_are_chosen_by_keys(tab: Any) -> None:
    tab.focus("#sw-measure")
    before = tab.locator("#sw-plot svg").get_attribute("aria-label")
    tab.keyboard.press("ArrowDown")
    after = tab.locator("#sw-plot svg").get_attribute("aria-label")
    assert before != after
    tab.keyboard.press("ArrowUp")
    tab.focus("#sw-axis")
    tab.keyboard.press("ArrowDown")
    assert tab.locator("#sw-plot svg").get_attribute("aria-label") == "per aggregate, s over detect"


@pytest.mark.ci
def test_the_heat_map_has_the_means(tab: Any, found: Picture) -> None:
    cells = [float(text) for text in tab.locator("#hm-table td").all_inner_texts()]
    own = [e.mean("per_aggregate_s") for e in found.entries if e.protocol == found.entries[0].protocol]
    assert cells == pytest.approx(own, abs=5e-4)


@pytest.mark.ci
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_windows_scroll_in_tables_alone(tab: Any, scheme: str) -> None:
    tab.emulate_media(color_scheme=scheme)
    tab.set_viewport_size({"width": 400, "height": 900})
    tab.wait_for_timeout(100)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 400
    tab.set_viewport_size({"width": 1200, "height": 900})
