"""Pages lead to each other, and their tables are those of the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from simfl.dataplane.work import WORK
from simfl.engine.user_round import MISSED_IN, State
from tests.docs.pages import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

FIELD_WORDS = {
    "secret shares": "crypto/shamir.py",
    "MDS cod": "crypto/mds.py",
    "fair-share link": "engine/fair_link.py",
    "random streams": "random_streams.py",
    "dropout": "world/dropout.py",
    "staleness": "protocols/staleness.py",
    "round's state machine": "protocols/server.py",
    "state machines": "protocols/machine.py",
}
"""A word of the field -> the module whose first lines have it."""


def section(page: str, title: str) -> str:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def anchors(page: Path) -> set[str]:
    text = page.read_text(encoding="utf-8")
    titles = re.findall(r"^#+ (.*)$", text, re.M)
    named = re.findall(r'<a id="([\w.-]+)">', text)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles} | set(named)


@pytest.mark.each
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([\w.-]*)\)", text):
        if not target.startswith("https://"):
            file = page.parent / target if target else page
            assert file.exists(), f"{page.name}: {target}"
            is_page = file.suffix == ".md"  # an image's anchor chooses light or dark
            assert not (anchor and is_page) or anchor in anchors(file), f"{page.name}: {target}#{anchor}"


def test_every_page_has_a_title_and_a_link_from_above() -> None:
    readme, index = (path.read_text(encoding="utf-8") for path in (PAGES[0], ROOT / "docs" / "index.md"))
    docs = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("reproduction.md", "scenario.md")]
    above = readme + re.sub(r"\]\(", "](docs/", "".join([index, *docs]))
    for page in PAGES[1:]:
        assert page.read_text(encoding="utf-8").startswith("# ")
        link = f"]({page.relative_to(ROOT).as_posix()}"
        assert link in above, f"no page above leads to {page}"


def test_the_table_of_work_is_complete() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    table = page.partition("| kind of work | counts |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \|", table, re.M)
    assert rows == list(WORK)


def test_files_that_the_architecture_names_are_there() -> None:
    table = re.findall(r"`(simfl/[\w./]+)`", section("architecture.md", "Where is what"))
    assert len(table) > 30
    assert [name for name in table if not (ROOT / name).exists()] == []
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    files = {path.name for path in (ROOT / "simfl").rglob("*.py")} | {
        path.name for folder in ("papers", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")
    }
    named = {Path(name).name for name in re.findall(r"[\w/]+\.py\b", text)} - {"path.py"}
    assert named <= files, named - files


def test_the_states_of_a_user_are_those_of_the_engine() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([^|]*) \|$", section("architecture.md", "Engine"), re.M)
    shown = {state: phase.strip("`") for state, phase in rows}
    missed = {state: MISSED_IN.get(state, "the protocol's first phase") for state in State}
    assert shown == {state.name.lower(): phase for state, phase in missed.items()}


@pytest.mark.parametrize("word", FIELD_WORDS)
def test_a_word_of_the_field_finds_its_module(word: str) -> None:
    tree = ast.parse((ROOT / "simfl" / FIELD_WORDS[word]).read_text(encoding="utf-8"))
    first = (ast.get_docstring(tree) or "").partition("\n\n")[0]
    assert word.lower() in first.lower()
