"""The pages of evidence are what the stored results say; every entry has one."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from papers.entry import Cell, Chart, Entry, Evidence, Line, Place
from papers.limits import LEFT_OUT, LIMITS
from papers.page import first_sentence, pages
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


def of_one(result: Stored) -> tuple[str, str]:
    """The overview, and the page of its one paper."""
    overview, paper, _ = pages([(entry(), result)], HERE).values()
    return overview, paper


def test_the_pages_are_those_of_the_stored_results() -> None:
    found = [(e, s) for name, e in ENTRIES.items() if (s := read(HERE, name)) is not None]
    written = pages(found, HERE)
    assert {path for path in written if path.read_text(encoding="utf-8") != written[path]} == set()
    assert {*HERE.results.glob("*.md"), HERE.page, HERE.page.with_suffix(".svg")} == set(written)
    named = {name: text for text in written.values() for name in re.findall(r'<a id="(\w+)">', text)}
    assert set(named) == set(ENTRIES)


def test_the_overview_of_one_entry() -> None:
    text, _ = of_one(stored())
    counts = "1 of 1 | 0 of 1 | 2 of 3 | 2 of 3 | -20 %"
    assert (
        f"| [Paper](reproduction/paper.md) | 1 | {counts} | [2](reproduction/paper.md#cells-that-miss) |"
        in text
    )
    apart = ", other papers | "
    rows = f"| by construction{apart}1 | 1 | 0 |\n| fitted{apart}1 | 0 | 1 |\n| predicted{apart}3 | 2 | 1 |"
    assert rows in text
    assert "Beside these, 1 values are shown and not judged." in " ".join(text.split())


def test_the_page_of_one_paper() -> None:
    _, text = of_one(stored())
    counts = "1 of 1 | 0 of 1 | 2 of 3 | 2 of 3 | -20 %"
    assert f"| [Table 9](#x) | what | {counts} | 1.0 s |" in text
    assert "| [Table 9](#x) | missed | 10 | 8 | s | **-20 %**, beyond 5 % |" in text
    assert "| [Table 9](#x) | not so | a < b | b < a |  | **not as stated** |" in text
    assert "| kept | 10 | 10.4 | s | +4 % | predicted |" in text
    assert "| missed | 10 | 8 | s | **-20 %**, beyond 5 % | predicted | why \\| where |" in text
    assert "| so | a < b | a < b |  | as stated | predicted |" in text
    assert "| not so | a < b | b < a |  | **not as stated** | fitted |" in text
    assert "| told |  | 12345 |  |  |  |" in text
    assert "![t](x.svg)" in text


def test_long_remarks_are_notes_each_once() -> None:
    long = ["a remark of more than a few words", "another of more than a few words"]
    cells = [replace(CELLS[0], remark=remark) for remark in (long[0], "short", long[1], long[0])]
    _, text = of_one(replace(stored(), evidence=Evidence(tuple(cells))))
    assert re.findall(r"^\| kept .* predicted \| (.*) \|$", text, re.M) == ["(1)", "short", "(2)", "(1)"]
    assert f"\n\n1. {long[0]}\n2. {long[1]}\n\n" in text


def test_a_paper_without_misses_has_no_table_of_them() -> None:
    overview, text = of_one(replace(stored(), evidence=Evidence(CELLS[:1])))
    assert "Cells that miss" not in text
    assert "#cells-that-miss" not in overview


def test_the_papers_own_data_are_named() -> None:
    own = replace(stored(), evidence=replace(stored().evidence, on="mnist from a local folder"))
    assert "**Run on** digits.\n\n**Compared.** How.\n" in of_one(stored())[1]
    assert "**Run on** mnist from a local folder.\n" in of_one(own)[1]


def test_weak_results_come_first_and_are_those_of_entries() -> None:
    assert set(LIMITS) <= set(ENTRIES)
    text = HERE.page.read_text(encoding="utf-8")
    titles = ["## By paper, the largest share of misses first", "## Weak results", "## Left out, and why"]
    assert re.findall(r"^## .*$", text, re.M) == titles
    assert all(f"| {paper} | {what} | {why} |" in text for paper, what, why in LEFT_OUT)
    weak = text.partition(titles[1])[2].partition(titles[2])[0]
    first = [first_sentence(limits) for limits in LIMITS.values()]
    assert [weak.index(sentence) for sentence in first] == sorted(map(weak.index, first))
    of_papers = "".join(path.read_text(encoding="utf-8") for path in HERE.results.glob("*.md"))
    assert [name for name, limits in LIMITS.items() if limits not in of_papers] == []
    papers = re.findall(r"^\| \[[^]]*\]\((reproduction/\w+\.md)\)", text, re.M)
    assert {HERE.page.parent / paper for paper in papers} == set(HERE.results.glob("*.md"))


def test_the_overview_states_the_share_of_cells_that_agree() -> None:
    text, _ = of_one(stored())
    assert "Counted apart, of Paper: 2 of 3 (67%)." in text
    assert "The picture has 2 numbers" in text


def test_a_cell_without_a_number_cannot_be_compared() -> None:
    for wrong in (Cell("c", None, 1.0), Cell("c", 1.0, "x"), Cell("c", 0.0, 1.0)):
        with pytest.raises(ValueError, match=r"c: .* cannot be compared"):
            _ = wrong.difference
    assert replace(CELLS[1], bound=None).agrees is None
