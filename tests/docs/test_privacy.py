"""docs/privacy.md: its command and Python. docs/privacy_evidence.md: its counts are those of commands."""

import re

import pytest

import simfl
from docs.tools.leak_counts import COUNTED, HEAD
from simfl.cli import main
from tests.docs.pages import ROOT, blocks, session

PAGE = ROOT / "docs" / "privacy.md"
EVIDENCE = (ROOT / "docs" / "privacy_evidence.md").read_text(encoding="utf-8")


@pytest.mark.ci
def test_its_command_prints_what_the_page_shows(capsys, monkeypatch, tmp_path) -> None:
    (command,) = (command for block in blocks(PAGE, "console") for command in session(block))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        main(command.simfl)
    assert not left.value.code
    printed = re.sub(r", \d+ s$", ", 3 s", capsys.readouterr().out, flags=re.MULTILINE)
    assert printed.splitlines() == list(command.prints)


def test_its_python_finds_the_leak_that_it_names() -> None:
    (block,) = blocks(PAGE, "python")
    names = {"simfl": simfl}
    exec(block.text.splitlines()[0].replace("users=4", "users=4, random=1"), names)
    assert names["report"].leaks[2] > 0
    assert len(names["report"].found.coalition) == 2


def test_its_counts_are_those_of_commands() -> None:
    """A row for each command, in their order."""
    _, _, table = EVIDENCE.partition(HEAD)
    rows = table.partition("\n\n")[0].strip().splitlines()
    assert [row.split("|")[1].strip() for row in rows] == [f"`{one.command}`" for one in COUNTED]


TIERS = {"": [], "ci": [pytest.mark.ci], "slow": [pytest.mark.slow]}


@pytest.mark.parametrize(
    "counted", [pytest.param(one, marks=TIERS[one.cost], id=one.command) for one in COUNTED]
)
def test_a_count_is_what_its_command_finds(counted) -> None:
    assert counted.row() in EVIDENCE
