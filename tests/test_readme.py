"""README.md: its commands print what it shows; its figures, options and names are those of pages and code."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from docs.tools import first_run, timing
from simfl.cli import app
from tests.docs.pages import ROOT, blocks, differs, session
from tests.docs.shell import Shell

PAGE = ROOT / "README.md"
TEXT = PAGE.read_text(encoding="utf-8")
COMMANDS = [command for block in blocks(PAGE, "console") for command in session(block)]


def test_it_is_short_and_in_order() -> None:
    """A picture and an output within the first screens; at most 200 lines."""
    assert len(TEXT.splitlines()) <= 200
    places = [
        "<picture>", "docs.tools.first_run", "## Which protocol", "## What happens", "## What does the",
        "## How far to trust", "## Other simulators", "## Install", "## Where next", "CITATION.cff",
    ]  # fmt: skip
    assert [TEXT.index(place) for place in places] == sorted(TEXT.index(place) for place in places)


@pytest.mark.ci
def test_its_commands_print_what_it_shows(shell: Shell) -> None:
    assert len(COMMANDS) >= 3
    for command in COMMANDS:
        printed = re.sub(r", \d+ s$", ", 3 s", shell.run(command), flags=re.M)  # a proof's own time
        assert not (wrong := differs(command.prints, printed)), f"{command.line}: {wrong}\n{printed}"


@pytest.mark.ci
def test_its_first_output_is_that_of_the_command() -> None:
    """Line by line; `python -m docs.tools.first_run` writes it anew where figures changed on purpose."""
    assert f"\n{first_run.COMMAND} " in TEXT
    shown, printed = first_run.between()[2], first_run.excerpt(first_run.printed())
    assert not differs(tuple(shown.splitlines()), printed)
    assert not differs(tuple(printed.splitlines()), shown)
    assert len(shown.splitlines()) <= 20


@pytest.mark.ci
def test_its_python_prints_what_it_shows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without its last lines, which print a scenario and draw a picture."""
    pytest.importorskip("pandas", reason="simfl[pandas] is not installed")
    monkeypatch.chdir(tmp_path)
    (code,), (shown,) = ([block.text for block in blocks(PAGE, name)] for name in ("python", "text"))
    assert len(code.splitlines()) <= 10
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code.partition("\nresult.plot()")[0], {})
    assert not (wrong := differs(tuple(shown.splitlines()), out.getvalue())), wrong


def drawn(svg: str) -> tuple[list[str], int]:
    """Return the words of a figure, and the number of its shapes."""
    return re.findall(r">([^<>\n]+)</text>", svg), svg.count("<path ")


@pytest.mark.ci
def test_its_picture_is_that_of_the_run() -> None:
    """The words and the number of shapes: fonts and versions of matplotlib move coordinates."""
    for name, text in timing.pictures().items():
        assert drawn((timing.IMAGES / name).read_text(encoding="utf-8")) == drawn(text), name
        assert f"docs/images/{name}" in TEXT


def test_its_picture_is_light_and_dark() -> None:
    light, dark = (
        (timing.IMAGES / f"timing_{name}.svg").read_text(encoding="utf-8") for name in ("light", "dark")
    )
    assert timing.darkened(light) == dark
    assert timing.LIGHT_INK in dark
    assert timing.LIGHT_INK not in light


def test_inline_commands_and_options_exist() -> None:
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    commands = {name: command for name, command in group.commands.items() if not command.hidden}
    assert set(re.findall(r"`simfl ([a-z]+)", TEXT)) <= set(commands)
    parsers: list[Any] = [*commands.values()]
    parsers += [inner for parser in parsers for inner in getattr(parser, "commands", {}).values()]
    options = {option for parser in parsers for p in parser.params for option in p.opts}
    used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", TEXT)) - {"--index-url", "--no-compile"}  # pip's
    assert len(used) >= 5
    assert used <= options, used - options


def test_files_that_it_names_exist() -> None:
    named = set(re.findall(r"\b(?:scenarios|simfl|docs|benchmarks)/[\w./]+\.(?:yaml|py|md|svg)", TEXT))
    assert len(named) > 8
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_its_figures_of_trust_are_those_of_their_pages() -> None:
    trust = " ".join(TEXT.partition("## How far to trust it")[2].partition("\n## ")[0].split())
    page = (ROOT / "docs" / "reality.md").read_text(encoding="utf-8")
    errors = {
        links: (count, median, greatest)
        for links, count, median, greatest in re.findall(
            r"^\| (.*?) \| a priori \| (\d+) \| ([\d.]+) / [\d.]+ / ([\d.]+) % \|", page, re.M
        )
    }
    count, median, greatest = errors["kernel, round trips; rounds"]
    assert f"for {count} configurations" in trust
    assert f"median error of {median} % and a maximum of {greatest} %" in trust
    _, median, greatest = errors["kernel, round trips; buffered"]
    assert f"{median} % and {greatest} %" in trust
    assert f"off by {errors['kernel, no round trips; buffered'][2]} %" in trust
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    for kind, shown in (
        ("predicted", "of {} predicted cells {} agree"),
        ("fitted", "of {} fitted ones {}"),
        ("by construction", "of {} that hold by construction {}"),
    ):
        judged, agree = re.findall(rf"^\| {kind} \| (\d+) \| (\d+) \|", page, re.M)[0]
        assert shown.format(judged, agree) in trust


def test_its_comparison_has_a_date_and_a_link_for_each() -> None:
    table = TEXT.partition("## Other simulators")[2].partition("\n## ")[0]
    assert re.search(r"\b20\d\d-\d\d-\d\d\b", table)
    assert re.findall(r"^\| \[(.*?)\]\(https://", table, re.M) == [
        "FedScale", "Flower", "FLGo", "pfl-research", "APPFL", "FedDES", "Olympia",
    ]  # fmt: skip
