"""The page of evidence is what the stored results say; every entry has one."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from papers.entry import Cell, Chart, Entry, Evidence, Line, Place
from papers.limits import LIMITS
from papers.page import page
from papers.registry import ENTRIES
from papers.store import Stored, read
from tests.engine.harness import ROOT

HERE = Place(ROOT)

CELLS = (
    Cell("kept", 10.0, 10.4, "s", bound=0.05),
    Cell("missed", 10.0, 8.0, "s", bound=0.05, remark="why | where"),
    Cell("so", "a < b", "a < b", compare="order"),
    Cell("not so", "a < b", "b < a", compare="order", basis="fitted"),
    Cell("of course", 2.0, 2.0, bound=0.0, basis="by construction"),
    Cell("told", None, 12345, compare="none"),
)


def entry(name: str = "x") -> Entry:
    charts = (Chart("t", "x", "y", (Line("a", (1.0,), (2.0,)),)),)
    return Entry(name, "Paper", "Table 9", "what", "digits", "How.", lambda _: Evidence(CELLS, charts))


def stored(name: str = "x") -> Stored:
    return Stored(name, f"simfl reproduce {name}", 1, "0+1", 1.0, entry().run(HERE))


@pytest.mark.parametrize("name", ENTRIES)
def test_every_entry_has_a_stored_result_with_figures(name: str) -> None:
    found = read(HERE, name)
    assert ENTRIES[name].name == name
    assert found is not None
    assert found.command == ENTRIES[name].command
    assert len(list(HERE.results.glob(f"{name}*.svg"))) >= len(found.evidence.charts)


def test_nothing_else_is_stored() -> None:
    assert {path.stem for path in HERE.results.glob("*.json")} == set(ENTRIES)


def test_the_page_is_what_the_stored_results_say() -> None:
    found = [(e, s) for name, e in ENTRIES.items() if (s := read(HERE, name)) is not None]
    assert HERE.page.read_text(encoding="utf-8") == page(found, HERE)


def test_a_page_of_one_entry() -> None:
    text = page([(entry(), stored())], HERE)
    counts = "1 of 1 | 0 of 1 | 2 of 3 | 2 of 3 | -20 %"
    assert f"| [Paper Table 9](#x) | what | {counts} | 1.0 s | `simfl reproduce x` |" in text
    assert "| by construction | 1 | 1 | 0 |\n| fitted | 1 | 0 | 1 |\n| predicted | 3 | 2 | 1 |" in text
    assert "Beside these, 1 values are shown and not judged." in " ".join(text.split())
    assert "| [Paper Table 9](#x) | missed | 10 | 8 | s | **-20 %**, beyond 5 % |" in text
    assert "| [Paper Table 9](#x) | not so | a < b | b < a |  | **not as stated** |" in text
    assert "| kept | 10 | 10.4 | s | +4 % | predicted |" in text
    assert "| missed | 10 | 8 | s | **-20 %**, beyond 5 % | predicted | why \\| where |" in text
    assert "| so | a < b | a < b |  | as stated | predicted |" in text
    assert "| not so | a < b | b < a |  | **not as stated** | fitted |" in text
    assert "| told |  | 12345 |  |  |  |" in text
    assert "![t](reproduction/x.svg)" in text


def test_data_of_the_papers_own_are_told() -> None:
    own = replace(stored(), evidence=replace(stored().evidence, on="mnist from a local folder"))
    assert "**Run on** digits.\n\n**Compared.** How.\n" in page([(entry(), stored())], HERE)
    assert "**Run on** mnist from a local folder.\n" in page([(entry(), own)], HERE)


def test_weak_results_come_first_and_are_those_of_entries() -> None:
    assert set(LIMITS) <= set(ENTRIES)
    text = HERE.page.read_text(encoding="utf-8")
    titles = ["## Weak results", "## Cells that miss", "## Not attempted", "## All results"]
    assert re.findall(r"^## .*$", text, re.M)[:4] == titles
    first = text[: text.index(titles[1])]
    assert [first.index(limits) for limits in LIMITS.values()] == sorted(map(first.index, LIMITS.values()))


def test_a_cell_without_a_number_cannot_be_compared() -> None:
    for wrong in (Cell("c", None, 1.0), Cell("c", 1.0, "x"), Cell("c", 0.0, 1.0)):
        with pytest.raises(ValueError, match=r"c: .* cannot be compared"):
            _ = wrong.difference
    assert replace(CELLS[1], bound=None).agrees is None
