"""docs/models_of_your_own.md shows the examples as they are, and what its commands and mistakes print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from simfl.cli import main
from simfl.random_streams import Streams
from simfl.world.availability import UserStates
from tests.docs.pages import ROOT, Command, blocks, differs, session

PAGE = ROOT / "docs" / "models_of_your_own.md"
EXAMPLES = ROOT / "examples"
SHOWN = ((".py", "python", ("charging",)), (".yaml", "yaml", ("charging",)))
"""Suffix of the examples, language of the blocks, and the examples of which the page shows a part."""


def test_the_code_is_the_examples() -> None:
    for suffix, language, names in SHOWN:
        for name, block in zip(names, blocks(PAGE, language), strict=True):
            assert block.text in (EXAMPLES / f"{name}{suffix}").read_text(encoding="utf-8")


def test_a_generator_has_about_ten_lines() -> None:
    for block in blocks(PAGE, "python"):
        body = block.text.partition("def states")[2]
        assert len(body.splitlines()) <= 10


COMMANDS = [command for block in blocks(PAGE, "console") for command in session(block)]


@pytest.mark.ci(but=["simfl check wrong.yaml"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.line)
def test_its_commands_print_what_the_page_shows(
    command: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`wrong.py` is the example of an availability with a text in place of True."""
    (tmp_path / "examples").symlink_to(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    code = (EXAMPLES / "charging.py").read_text(encoding="utf-8")
    assert "self.plugged_s, True" in code
    Path("wrong.py").write_text(code.replace("self.plugged_s, True", "self.plugged_s, 'plugged'"))
    text = (EXAMPLES / "charging.yaml").read_text(encoding="utf-8")
    Path("wrong.yaml").write_text(text.replace("charging.py:", "wrong.py:"))
    with pytest.raises(SystemExit) as left:
        main(command.simfl)
    assert (left.value.code or 0) == (2 if "wrong" in command.line else 0)
    printed = capsys.readouterr()
    both = (printed.out + printed.err).replace(f"{tmp_path}/", "")
    assert not (wrong := differs(command.prints, both)), f"{wrong}\n{both}"


def mistakes() -> Iterator[tuple[str, str]]:
    """The rows of the table: a mistake, its message."""
    yield from re.findall(r"^\| (`yield.*|`while.*|`random.*) \| `(.*)` \|$", PAGE.read_text(), re.M)


def test_its_mistakes_have_the_messages_shown() -> None:
    class Mine(UserStates):
        body: int

        def states(self, user: int, rng: np.random.Generator) -> Iterator[tuple[float, bool]]:
            if self.body == 0:
                yield -5.0, True
            if self.body == 1:
                yield from [(1.0, True)] * 3
            while self.body == 2:
                yield np.random.default_rng().random(), True

    rows = list(mistakes())
    assert len(rows) == 3
    for body, (_, shown) in enumerate(rows):
        with pytest.raises(ValueError, match="availability Mine, user 0: ") as refused:
            Mine(body=body).try_out(0, Streams(1), "availability")
        message = str(refused.value).partition("user 0: ")[2]
        pattern = re.escape(shown).replace(r"\.\.\.", r"\(.*\)")
        assert re.fullmatch(pattern, message), message
