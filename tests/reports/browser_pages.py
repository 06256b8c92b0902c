"""The pages that a browser opens, and what it shows of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simfl.reports.folder import Run
from simfl.reports.one_round import Focus
from simfl.reports.page import page
from tests.engine.harness import ASYNC, run
from tests.reports.conftest import opened, renamed
from tests.reports.test_page import EVIL
from tests.reports.test_strip import many

# Two of three batches of two; a round in which fewer of them are online is skipped.
CHOSEN = {
    "population.users": 6,
    "selection": {"kind": "multi_round", "users": 4, "T": 2},
    "population.availability": {"bernoulli": 0.7},
    "privacy": {"T": 1, "D": 1, "U": 3},
    "rounds": 8,
    "protocols": ["lightsecagg"],
}


def written(losing: Run, buffered: Run, folder: Path) -> dict[str, Path]:
    """Write the pages of two runs, and of some that are made for it."""
    run({"protocols": ["fedbuff"]}, ASYNC, out=folder / "evil")
    evil = renamed(opened(folder / "evil"), EVIL, EVIL)
    run(CHOSEN, out=folder / "chosen")
    pages = {
        "losing": page(losing),
        "buffered": page(buffered),
        "evil": page(evil),
        "chosen": page(opened(folder / "chosen")),
        "first": page(losing, (0, 0)),
        "many": page(many(losing, "secagg", 5000)),
        "asked": page(losing, None, Focus(1, 5, "secagg")),
        "asked_buffered": page(buffered, None, Focus(4, None, "fedbuff")),
    }
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in pages}


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


# --- the strips of all rounds
IN_SIGHT = "(b => b.bottom > 0 && b.top < innerHeight)(document.getElementById('tl').getBoundingClientRect())"
MARKED = """(strip, k) => {  // is there anything below the bar of round k of three?
  const from = strip.firstChild, copy = document.createElement("canvas"), ratio = devicePixelRatio;
  copy.width = from.width;
  copy.height = from.height;
  const pen = copy.getContext("2d", {willReadFrequently: true}), third = from.width / 3;
  pen.drawImage(from, 0, 0);
  return pen.getImageData(k * third, 45 * ratio, third, 4 * ratio).data.some(value => value > 0);
}"""


def bar(tab: Any, strip: int, part: float) -> tuple[float, float]:
    """A place on a strip, from its left to its right."""
    tab.locator(".strip").nth(strip).evaluate("e => e.scrollIntoView({block: 'center'})")
    box = tab.locator(".strip").nth(strip).bounding_box()
    return box["x"] + part * box["width"], box["y"] + 20


def shown(tab: Any) -> tuple[str, str]:
    chosen = [tab.locator(f"#tl-{what} option:checked").inner_text() for what in ("protocol", "view")]
    return chosen[0], chosen[1]


def outcomes(tab: Any, strip: int) -> str:
    return str(tab.evaluate(
        "k => JSON.parse(document.getElementById('strips-data').textContent).rows[k].outcome", strip
    ))  # fmt: skip
