"""The table that a notebook shows for a result."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from simfl.runs.results import html
from tests.engine.harness import SIX, run, script

HOSTILE = '<script>alert("&")</script>'


class Cells(HTMLParser):
    """The text of each row's cells, and the tags that are there."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows:
            self.rows[-1][-1] += data


def test_it_holds_the_breakdown_of_each_protocol() -> None:
    result = run(SIX)
    found = Cells(result._repr_html_())
    assert found.rows[0] == ["", *SIX["protocols"]]
    means = {name: p.mean for name, p in result.protocols.items()}
    rows = {label: cells for label, *cells in found.rows}
    assert rows["per aggregate"] == [f"{mean.per_aggregate_s:.3f}" for mean in means.values()]
    assert rows["offline"] == [f"{mean.span_s.offline:.3f}" for mean in means.values()]
    assert rows["aggregates exact"] == ["1 of 1"] * 3
    assert {len(row) for row in found.rows} == {4}


def test_text_of_a_scenario_is_escaped() -> None:
    summary = run({"payload": "shadow"}).summarised()
    (entry,) = summary.protocols.values()
    page = html.table(summary.model_copy(update={"scenario": HOSTILE, "protocols": {HOSTILE: entry}}))
    assert "script" not in Cells(page).tags
    assert Cells(page).rows[0] == ["", HOSTILE]
    assert page.count("&lt;script&gt;") == 2


def test_it_asks_no_network_for_anything() -> None:
    assert not re.search("https?:|src=|url\\(", run(SIX)._repr_html_())


def test_faults_are_in_red() -> None:
    lost = script(*((user, 0, "upload", "before_send") for user in range(4)))
    assert html.FAULT in run({**SIX, "dropout": lost})._repr_html_()
    assert html.FAULT not in run(SIX)._repr_html_()
