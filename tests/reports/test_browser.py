"""The page as a browser shows it: headless Chromium, two widths, both colour schemes, mouse and keys."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from simfl.reports.folder import Run
from tests.reports.browser_pages import IN_SIGHT, MARKED, bar, outcomes, settled, shown, sight, tip, written
from tests.reports.test_chart import luminance
from tests.reports.test_page import EVIL

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def files(losing: Run, buffered: Run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return written(losing, buffered, tmp_path_factory.mktemp("pages"))


VIEWS = list(product(("losing", "buffered", "evil", "chosen", "many"), (400, 1600), ("light", "dark")))
FIRST = {("losing", 1600, "dark"), ("chosen", 400, "dark"), ("buffered", 400, "dark"), ("evil", 400, "light")}


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
    tab.click("#tl-fit")
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


# --- the strips of all rounds -------------------------------------------------------------------
@pytest.mark.parametrize("width", [400, pytest.param(1200, marks=pytest.mark.slow)])
def test_a_bar_names_its_round_and_a_click_shows_it(show: Any, losing: Run, width: int) -> None:
    tab = show("losing", width)
    for strip, name in enumerate(losing.traces):
        for index, r in enumerate(losing.summary.protocols[name].rounds):
            tab.mouse.move(*bar(tab, strip, (index + 0.5) / 3))
            text = tip(tab)
            assert text.startswith(f"round {index} of {name}\n")
            assert ("failed" in text, "completed" in text) == (not r.completed, r.completed)
            assert (r.reason or "") in text
            tab.mouse.click(*bar(tab, strip, (index + 0.5) / 3))
            assert shown(tab) == (name, str(index))
            assert (
                tab.locator("#strips-picked")
                .inner_text()
                .startswith(f"The timeline below shows round {index} of {name}: ")
            )
            assert tab.evaluate(IN_SIGHT)


def test_strips_are_gone_through_by_keyboard(show: Any, losing: Run) -> None:
    tab = show("losing")
    strip = tab.locator(".strip").nth(1)
    tab.locator(".longest").first.focus()
    tab.keyboard.press("Tab")
    assert strip.evaluate("e => e === document.activeElement")
    assert tip(tab).startswith("round 0 of secagg\n")
    for key, index in [("ArrowRight", 1), ("End", 2), ("ArrowRight", 2), ("ArrowLeft", 1), ("Home", 0),
                       ("PageDown", 1), ("PageUp", 0), ("ArrowUp", 1)]:  # fmt: skip
        tab.keyboard.press(key)
        assert tip(tab).startswith(f"round {index} of secagg\n")
        assert strip.get_attribute("aria-valuenow") == str(index)
        assert (strip.get_attribute("aria-valuetext") or "").startswith(f"{index}: ")
    tab.keyboard.press("Enter")
    assert shown(tab) == ("secagg", "1")
    assert strip.evaluate("e => e === document.activeElement")
    tab.keyboard.press("Tab")
    assert tip(tab) == ""
    tab.keyboard.press("Enter")
    longest = max(losing.summary.protocols["secagg"].rounds, key=lambda r: r.total_s)
    assert shown(tab) == ("secagg", str(longest.index))


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.slow), "dark"])
def test_a_failed_round_has_a_mark_below_its_bar(show: Any, scheme: str) -> None:
    tab = show("losing", color_scheme=scheme)
    for strip in range(3):
        marks = [tab.locator(".strip").nth(strip).evaluate(MARKED, k) for k in range(3)]
        assert marks == [letter == "f" for letter in outcomes(tab, strip)]


def test_a_round_outside_the_timeline_names_the_command_for_it(show: Any) -> None:
    tab = show("first")
    before = shown(tab)
    tab.mouse.move(*bar(tab, 0, 0.9))
    assert "not in this page's timeline" in tip(tab)
    tab.mouse.click(*bar(tab, 0, 0.9))
    picked = tab.locator("#strips-picked")
    assert "does not hold round 2 of fedavg" in picked.inner_text()
    assert picked.locator("code").inner_text() == "simfl report . --round 2"
    assert shown(tab) == before
    tab.mouse.click(*bar(tab, 0, 0.1))
    assert shown(tab) == ("fedavg", "0")


def test_skipped_rounds_are_in_the_legend(show: Any) -> None:
    tab = show("chosen", 400)
    found = outcomes(tab, 0)
    assert "s" in found
    assert "c" in found
    tab.mouse.move(*bar(tab, 0, (found.index("s") + 0.5) / len(found)))
    assert "skipped\nselection: " in tip(tab)
    assert "skipped: no user was selected" in tab.locator("#rounds .legend").inner_text()


@pytest.mark.parametrize("width", [400, pytest.param(1200, marks=pytest.mark.slow)])
def test_of_thousands_of_bars_the_longest_is_hit(show: Any, width: int) -> None:
    tab = show("many", width)
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    for index in (99, 2499, 4999):
        tab.mouse.move(*bar(tab, 0, (index + 0.5) / 5000))
        assert tip(tab).startswith(f"round {index} of secagg\n")
    tab.locator(".strip").focus()
    tab.keyboard.press("PageDown")
    assert tab.locator(".strip").get_attribute("aria-valuenow") == "500"


def test_an_aggregation_is_zoomed_to(show: Any, buffered: Run) -> None:
    tab = show("buffered")
    tab.click("#tl-fit")
    whole = int(settled(tab)["spans"])
    tab.mouse.click(*bar(tab, 1, 4.5 / 8))
    assert shown(tab) == (list(buffered.traces)[1], "0 to 7")
    assert 0 < int(settled(tab)["spans"]) < whole


def test_a_buffers_timeline_opens_on_one_aggregation(show: Any, buffered: Run) -> None:
    """Of eight, on that of median length: all eight together are eight times as many spans."""
    tab = show("buffered")
    rounds = buffered.summary.protocols[shown(tab)[0]].rounds
    median = sorted(rounds, key=lambda r: r.total_s)[len(rounds) // 2]
    assert f"It opens on aggregation {median.index}; Fit shows all." in tab.inner_text("#tl-caption")
    opened = int(settled(tab)["spans"])
    tab.click("#tl-fit")
    assert 0 < opened < int(settled(tab)["spans"]) / 4


def test_the_page_opens_on_the_round_that_is_asked_for(show: Any) -> None:
    tab = show("asked", reduced_motion="no-preference")
    assert shown(tab) == ("secagg", "1")
    assert tab.input_value("#tl-users") == "5"
    assert settled(tab)["rows"] == "1"
    top = "document.getElementById('timeline').getBoundingClientRect().top"
    assert 0 <= tab.evaluate(top) < 100
    tab = show("asked_buffered", 400)
    assert shown(tab)[0] == "fedbuff"
    assert tab.input_value("#tl-users") == ""
    zoomed = int(settled(tab)["spans"])
    tab.click("#tl-fit")
    assert zoomed < int(settled(tab)["spans"])
    assert tab.evaluate("scrollY") > 0
    assert show("losing").evaluate("scrollY") == 0


def test_motion_is_reduced_where_it_is_asked_for(show: Any) -> None:
    behaviour = "getComputedStyle(document.documentElement).scrollBehavior"
    assert show("losing", reduced_motion="reduce").evaluate(behaviour) == "auto"
    assert show("losing", reduced_motion="no-preference").evaluate(behaviour) == "smooth"


def test_the_list_beside_the_chart_has_the_accuracies(show: Any, losing: Run) -> None:
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
