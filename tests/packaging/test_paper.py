"""paper/paper.md: its length, sections and citations; and each number is one of the page that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WHOLE = (ROOT / "paper" / "paper.md").read_text(encoding="utf-8")
_, FRONT, BODY = WHOLE.split("---\n", 2)
BIBLIOGRAPHY = (ROOT / "paper" / "paper.bib").read_text(encoding="utf-8")

SECTIONS = (
    "Summary", "Statement of need", "State of the field", "Software design", "Research impact",
    "AI usage disclosure", "References",
)  # fmt: skip
NUMBER = re.compile(r"(?<![\w.@])\d[\d,]*(?:\.\d+)?(?![\w@])")


def numbers(text: str) -> list[str]:
    """Numbers as they are written, without the commas behind them; 4G and bonawitz2017 are words."""
    return [found.rstrip(",") for found in NUMBER.findall(re.sub(r"\[@[^\]]*\]", "", text))]


def test_its_length() -> None:
    words = re.sub(r"<!--.*?-->", "", BODY, flags=re.S).partition("# References")[0].split()
    assert 1000 <= len(words) <= 1750


def test_its_front_matter_and_sections() -> None:
    front = yaml.safe_load(FRONT)
    assert {"title", "tags", "authors", "affiliations", "date", "bibliography"} <= set(front)
    assert (ROOT / "paper" / front["bibliography"]).is_file()
    headings = re.findall(r"^# (.+)$", BODY, re.M)
    assert [name for name in SECTIONS if name not in headings] == []
    disclosed = BODY.partition("# AI usage disclosure")[2].partition("\n# ")[0]
    assert "written by AI agents" in disclosed


def test_each_number_is_one_of_the_page_that_it_names() -> None:
    seen = 0
    for paragraph in BODY.split("\n\n"):
        pages = re.findall(r"<!-- (\S+) -->", paragraph)
        found = numbers(re.sub(r"<!--.*?-->", "", paragraph))
        there = {one for page in pages for one in numbers((ROOT / page).read_text(encoding="utf-8"))}
        assert [one for one in found if one not in there] == [], paragraph
        seen += len(found)
    assert seen > 15


@pytest.mark.parametrize(
    ("text", "found"),
    [("d = 1,206,590, and 4G at 15.5 s, 30%", ["1,206,590", "15.5", "30"]), ("[@so2022]", [])],
)
def test_what_a_number_is(text: str, found: list[str]) -> None:
    assert numbers(text) == found


def test_citations_and_bibliography_agree() -> None:
    cited = set(re.findall(r"@(\w+)", BODY))
    entries = re.findall(r"^@\w+\{(\w+),", BIBLIOGRAPHY, re.M)
    assert cited == set(entries)
    assert len(entries) == len(set(entries))
    assert BIBLIOGRAPHY.count("{") == BIBLIOGRAPHY.count("}")
