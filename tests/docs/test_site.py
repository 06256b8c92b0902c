"""The documentation as a site: it builds without a warning, and every page is in it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, scenario_pages

DOCS = ROOT / "docs"


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", root / "mkdocs.yml", "-d", site]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, env=quiet)


@pytest.mark.ci
def test_it_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="the site needs simfl[docs]")
    done = build(ROOT, tmp_path / "site")
    assert done.returncode == 0, done.stderr
    pages = {path.relative_to(DOCS).with_suffix("") for path in DOCS.rglob("*.md")}
    built = {path.relative_to(tmp_path / "site").with_suffix("") for path in tmp_path.rglob("*.html")}
    assert built - {Path("404")} == pages
    assert not list((tmp_path / "site" / "reproduction").glob("*.json"))
    text = (tmp_path / "site" / "search" / "search_index.json").read_text(encoding="utf-8")
    assert '"location":"glossary.html#' in text
    assert (tmp_path / "site" / "search" / "search_index.js").is_file()


def test_nav_has_each_page_once_and_search_works_from_files() -> None:
    """Two entries of one page were named alike; the search index of a site in a folder is a script."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = re.findall(r"^ +- .*: (\S+\.md)$", text, re.M)
    assert len(pages) > 30
    assert len(set(pages)) == len(pages)
    plugins = text.partition("plugins:\n")[2].partition("\n\n")[0]
    assert re.findall(r"- (\w+)", plugins) == ["offline", "search"]


@pytest.mark.ci
@pytest.mark.parametrize("link", ["[x](nowhere.md)", "[x](other.md#nothing)", "[x](../README.md)"])
def test_a_dead_link_is_found(tmp_path: Path, link: str) -> None:
    pytest.importorskip("material", reason="the site needs simfl[docs]")
    (tmp_path / "docs").mkdir()
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[0]
    (tmp_path / "mkdocs.yml").write_text(settings, encoding="utf-8")
    (tmp_path / "docs" / "other.md").write_text("# Other\n", encoding="utf-8")
    (tmp_path / "docs" / "index.md").write_text(f"# Page\n\n{link}\n", encoding="utf-8")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode == 1
    assert "Aborted with 1 warnings in strict mode" in done.stderr + done.stdout


def test_files_that_pages_name_are_there() -> None:
    for page in DOCS.rglob("*.md"):
        named = re.findall(
            r"`((?:simfl|scenarios|tests|examples|docs)/[\w./]+\.\w+)`", page.read_text("utf-8")
        )
        assert [name for name in named if not (ROOT / name).exists()] == [], page.name


def test_keys_of_the_glossary_are_those_of_the_schema() -> None:
    reference = scenario_pages()
    keys = re.findall(r"`(\w+(?:\.\w+)+)`", (DOCS / "glossary.md").read_text(encoding="utf-8"))
    keys = [key for key in keys if not key.endswith(".csv")]
    assert len(keys) > 15
    words = {word for key in keys for word in key.split(".")} - {"NAME"}
    assert [word for word in sorted(words) if f"`{word}`" not in reference] == []
