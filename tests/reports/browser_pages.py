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
