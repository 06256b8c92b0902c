"""The page as a browser shows it: headless Chromium, two widths, both colour schemes, mouse and keys."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from simfl.reports.folder import Run
from simfl.reports.page import page
from tests.engine.harness import ASYNC, run
from tests.reports.conftest import opened, renamed
from tests.reports.test_chart import luminance
from tests.reports.test_page import EVIL

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed (simfl[dev])")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (apt-get install chromium)")


@pytest.fixture(scope="module")
def files(losing: Run, buffered: Run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    run({"protocols": ["fedbuff"]}, ASYNC, out=folder / "evil")
    evil = renamed(opened(folder / "evil"), EVIL, EVIL)
    runs = {"losing": losing, "buffered": buffered, "evil": evil}
    for name, found in runs.items():
        (folder / f"{name}.html").write_text(page(found), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in runs}


@pytest.fixture(scope="module")
def browser(files: dict[str, Path]) -> Iterator[Any]:
    """Started when the runs are over: while it lives, this thread has an event loop."""
    with sync_api.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def show(browser: Any, files: dict[str, Path]) -> Iterator[Any]:
    """Open a page; what its console said and what it asked for must be nothing in the end."""
    contexts, said, asked = [], [], []

    def opener(name: str, width: int = 1200, **more: Any) -> Any:
        more = {"reduced_motion": "reduce", **more}  # what is scrolled to is there at once
        context = browser.new_context(viewport={"width": width, "height": 900}, **more)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(files[name].as_uri())
        tab.wait_for_selector("#tl[data-spans]", state="attached")
        return tab

    yield opener
    for context in contexts:
        context.close()
    assert not said
    assert {url for url in asked if url != "data:,"} <= {path.as_uri() for path in files.values()}


def settled(tab: Any) -> Any:
    """After the next frames, in which the timeline is drawn."""
    tab.evaluate("() => new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")
    return tab.evaluate("({...document.getElementById('tl').dataset})")


def tip(tab: Any) -> str:
    settled(tab)
    return str(tab.locator("#tip").inner_text()) if tab.locator("#tip").is_visible() else ""


def sight(tab: Any, element: str) -> dict[str, float]:
    """Where an element is, once it is in sight."""
    tab.locator(element).evaluate("e => e.scrollIntoView({block: 'center'})")
    box: dict[str, float] = tab.locator(element).bounding_box()
    return box


VIEWS = list(product(("losing", "buffered", "evil"), (400, 1600), ("light", "dark")))
FIRST = {("losing", 1600, "dark"), ("buffered", 400, "dark"), ("evil", 400, "light")}


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [pytest.param(*view, marks=[] if view in FIRST else pytest.mark.slow) for view in VIEWS],
)
def test_it_opens_in_any_width_and_scheme(show: Any, name: str, width: int, scheme: str) -> None:
    tab = show(name, width, color_scheme=scheme)
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert int(settled(tab)["spans"]) > 0
    colours = tab.evaluate(
        "['paper', 'ink', 'soft', 'bad'].map(n => getComputedStyle(document.documentElement)"
        ".getPropertyValue('--' + n).trim())"
    )
    paper, *texts = (luminance(colour) + 0.05 for colour in colours)
    assert (paper > 0.5) == (scheme == "light")
    for text in texts:
        assert max(text, paper) / min(text, paper) > 4.5  # WCAG 2 AA
    if name == "evil":
        assert tab.locator("h1").inner_text() == EVIL
        assert tab.locator("#tl-protocol option").inner_text() == EVIL


def test_a_hover_shows_the_span_that_the_keyboard_shows(show: Any) -> None:
    tab = show("losing")
    tab.locator("#tl").focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowDown")
    for _ in range(5):
        tab.keyboard.press("ArrowRight" if "message" in tip(tab) else "+")
    by_keys = tip(tab)
    assert " lane" in by_keys  # steps of a lane never overlap, messages may
    assert by_keys.startswith("user 0 · ")
    x, y = map(int, settled(tab)["focus"].split(","))
    tab.keyboard.press("Escape")
    assert tip(tab) == ""
    box = sight(tab, "#tl-canvas")
    tab.mouse.move(box["x"] + x, box["y"] + y)
    assert tip(tab) == by_keys
    tab.mouse.move(box["x"] + 20, box["y"] + y)  # a row's name is no span
    assert tip(tab) == ""


def test_a_hover_over_the_link_counts_messages(show: Any) -> None:
    tab = show("losing")
    box = sight(tab, "#tl-canvas")
    tab.mouse.move(box["x"] + 110, box["y"] + 45)
    assert "messages under way to users" in tip(tab)


def test_filters_filter(show: Any) -> None:
    tab = show("losing")
    everything = settled(tab)
    assert everything["rows"] == "6"
    tab.fill("#tl-users", "2, 4-5")
    some = settled(tab)
    assert some["rows"] == "3"
    assert 0 < int(some["spans"]) < int(everything["spans"])
    tab.fill("#tl-users", "everybody")
    assert tab.get_attribute("#tl-users", "aria-invalid") == "true"
    assert settled(tab) == some
    tab.fill("#tl-users", "")
    assert settled(tab) == everything
    spans = []
    for phase in range(4):
        tab.uncheck(f"[data-phase='{phase}']")
        spans.append(int(settled(tab)["spans"]))
    assert int(everything["spans"]) > spans[0] > spans[1] >= spans[2] >= spans[3] == 0


def test_only_the_critical_path_can_be_shown(show: Any, losing: Run) -> None:
    tab = show("losing")
    before = settled(tab)
    tab.check("#tl-path")
    after = settled(tab)
    index = int(tab.locator("#tl-view option:checked").inner_text())
    users = {party for _, party, _ in losing.rounds["lightsecagg"][index].critical if party >= 0}
    assert int(after["rows"]) == len(users)
    assert 0 < int(after["spans"]) < int(before["spans"])


def test_protocols_and_rounds_can_be_chosen(show: Any, losing: Run) -> None:
    tab = show("losing")
    assert tab.locator("#tl-protocol option").all_inner_texts() == list(losing.traces)
    assert tab.locator("#tl-protocol option:checked").inner_text() == "lightsecagg"
    tab.select_option("#tl-protocol", label="fedavg")
    tab.select_option("#tl-view", label="2")
    start = losing.rounds["fedavg"][2].start / 1e9
    assert f"Round 2, fedavg: from {start:.3f} s" in tab.locator("#tl-caption").inner_text()
    tab.select_option("#tl-protocol", label="secagg")
    assert tab.locator("#tl-view option:checked").inner_text() == "2"


def test_the_keyboard_steps_zooms_and_goes_to_causes(show: Any) -> None:
    tab = show("losing")
    whole = settled(tab)
    tab.locator("#tl").focus()
    assert tab.evaluate("getComputedStyle(document.getElementById('tl')).outlineStyle") != "none"
    tab.keyboard.press("End")
    tab.keyboard.press("End")
    last = tip(tab)
    assert last.startswith("server · recovery")
    assert "on the critical path" in last
    seen = [last]
    for _ in range(40):
        tab.keyboard.press("Enter")
        if (now := tip(tab)) == seen[-1]:
            break
        seen.append(now)
    assert seen[-1].startswith("server · ")  # the start of the round
    assert any(text.startswith("user ") for text in seen)
    assert len(set(seen)) == len(seen) > 4
    tab.keyboard.press("Home")
    for _ in range(6):
        tab.keyboard.press("+")
    assert int(settled(tab)["spans"]) < int(whole["spans"])
    tab.keyboard.press("0")
    assert settled(tab)["spans"] == whole["spans"]
    tab.keyboard.press("Tab")
    assert tip(tab) == ""


def test_everything_can_be_reached_by_tab(show: Any) -> None:
    tab = show("buffered")
    reached = set()
    for _ in range(60):
        tab.keyboard.press("Tab")
        reached.add(tab.evaluate("document.activeElement.id || document.activeElement.tagName"))
    wanted = {
        "A",
        "SUMMARY",
        "tl-protocol",
        "tl-view",
        "tl-users",
        "tl-path",
        "tl-in",
        "tl-out",
        "tl-fit",
        "tl",
    }
    assert wanted <= reached


def test_a_drag_pans_and_buttons_zoom(show: Any) -> None:
    tab = show("buffered")
    whole = int(settled(tab)["spans"])
    for _ in range(4):
        tab.click("#tl-in")
    zoomed = int(settled(tab)["spans"])
    assert zoomed < whole
    before = tab.locator("#tl-canvas").screenshot()
    box = sight(tab, "#tl-canvas")
    tab.mouse.move(box["x"] + 600, box["y"] + 150)
    tab.mouse.down()
    tab.mouse.move(box["x"] + 300, box["y"] + 150, steps=4)
    tab.mouse.up()
    settled(tab)
    assert tab.locator("#tl-canvas").screenshot() != before
    tab.click("#tl-fit")
    assert int(settled(tab)["spans"]) == whole


def test_motion_is_reduced_where_it_is_asked_for(show: Any) -> None:
    behaviour = "getComputedStyle(document.documentElement).scrollBehavior"
    assert show("losing", reduced_motion="reduce").evaluate(behaviour) == "auto"
    assert show("losing", reduced_motion="no-preference").evaluate(behaviour) == "smooth"


def test_over_the_chart_the_list_says_what_was_reached(show: Any, losing: Run) -> None:
    tab = show("losing")
    box = sight(tab, "#acc")
    values = tab.locator(".series .value")
    final = values.all_inner_texts()
    tab.mouse.move(box["x"] + 1, box["y"] + 50)
    assert values.all_inner_texts() == ["–"] * len(losing.traces)
    tab.mouse.move(box["x"] + box["width"] - 1, box["y"] + 50)
    assert [text.split(" at ")[0] for text in values.all_inner_texts()] == final
    tab.mouse.move(5, 5)
    assert values.all_inner_texts() == final
