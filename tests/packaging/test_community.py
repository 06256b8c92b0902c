"""Files for people and for evaluators: the Dockerfile runs README's commands, and links lead somewhere."""

from __future__ import annotations

import re

import pytest
import yaml

import simfl
from tests.docs.pages import ROOT, blocks

PAGES = ("CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md")


def test_the_dockerfile_runs_the_two_commands_of_the_readme() -> None:
    first = blocks(ROOT / "README.md", "")[0].text
    commands = [line.partition("#")[0].strip() for line in first.splitlines()]
    makes = [line for line in commands if line.startswith("make ")]
    assert makes == ["make run", "make test"]
    docker = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", "")
    steps = [line.split(None, 1) for line in docker.splitlines() if line and not line.startswith("#")]
    assert steps[0][0] == "FROM"
    assert [command for step, command in steps if step == "RUN"][-2:] == makes
    assert steps.index(["COPY", ". ."]) < steps.index(["RUN", "make run"])
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert {"run", "test"} <= set(targets)


def test_the_image_gets_nothing_that_git_ignores() -> None:
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    left_out = set((ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines())
    # Results of benchmarks are small, and some are kept; what begins in .git is said in another way.
    missing = [name.strip("/") for name in ignored if not name.lstrip("!").startswith("benchmarks/")]
    assert [name for name in missing if not {name, f"{name}/", f"**/{name}"} & left_out] == []


@pytest.mark.parametrize("page", PAGES)
def test_its_links_lead_to_files(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)(?:#[\w-]+)?\)", text):
        assert link.startswith("https://www.contributor-covenant.org/") or (ROOT / link).is_file(), link


def test_the_changelog_goes_by_version() -> None:
    versions = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert simfl.__version__ in versions[0]
    assert all(re.fullmatch(r"(Unreleased \()?\d+\.\d+\.\d+\)?(, \d{4}-\d{2}-\d{2})?", v) for v in versions)


def test_the_citation_is_whole() -> None:
    """The keys that the Citation File Format 1.2.0 demands of a work and of each reference."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors", "abstract", "license", "keywords", "version"} <= set(citation)
    for reference in citation["references"]:
        assert {"type", "title", "authors", "year"} <= set(reference)
        assert all({"family-names", "given-names"} == set(author) for author in reference["authors"])


def test_security_names_what_is_executed() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    for word in ("module: path.py:Name", "entry point", "unpickle", "YAML", "simfl join", "Report a problem"):
        assert word in text


def test_security_names_tests_that_exist() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", text)
    assert len(named) > 20
    for file, name in named:
        source = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert f"def {name}(" in source, f"{file}::{name}"
