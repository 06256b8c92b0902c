"""docs/tutorial.md is followed from its first command to its last."""

from __future__ import annotations

import re
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest

from simfl.learning.data.dataset import Dataset, Split
from tests.docs.pages import ROOT, Command, blocks, differs, session
from tests.docs.shell import Shell

PAGE = ROOT / "docs" / "tutorial.md"
TEXT = PAGE.read_text(encoding="utf-8")


def quicker(command: Command) -> list[str]:
    """Return arguments that save time and leave the shown lines as they are."""
    words = command.simfl or [""]
    if words[0] == "sweep":
        return ["--jobs", "1"]  # no processes that import torch anew
    if "--clock" in words:
        return ["--set", "rounds=1"]
    real = any(line.startswith(("test accuracy", "aggregates exact")) for line in command.prints)
    return [] if words[0] != "run" or real else ["--set", "payload=shadow"]


@pytest.fixture
def drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep synthetic samples: the page's runs and cells draw the same ones thirty times."""
    kept: dict[str, Split] = {}
    load = Dataset.loaded

    def loaded(self: Dataset, rng: np.random.Generator, root: Path | None = None) -> Split:
        key = f"{rng.bit_generator.state} {self!r} {root}"
        return kept.get(key) or kept.setdefault(key, load(self, rng, root))

    monkeypatch.setattr(Dataset, "loaded", loaded)


@pytest.mark.ci
@pytest.mark.usefixtures("drawn_once")
def test_every_command_prints_what_the_page_shows(shell: Shell) -> None:
    ran = 0
    for block in blocks(PAGE):
        if named := re.match(r"# (\S+\.yaml)\n", block.text):
            (shell.folder / named[1]).write_text(block.text)
            continue
        assert block.language == "console", f"a block that nothing runs: {block.text}"
        commands = list(session(block))
        for command, after in zip_longest(commands, commands[1:]):
            if command.line == "echo $?":
                continue
            code = int(after.prints[0]) if after and after.line == "echo $?" else 0
            printed = shell.run(command, *quicker(command), code=code)
            assert not (wrong := differs(command.prints, printed)), f"{command.line}: {wrong}\n{printed}"
            ran += 1
    assert ran == 12
    study = shell.folder / "sweeps" / "study"
    named = re.findall(r"`(?:sweeps/study/)?([\w./=,-]+\.(?:html|csv)|preset=[^`]*)`", TEXT)
    left = {path.name for folder in (study, study / "points", shell.folder) for path in folder.iterdir()}
    assert {"means.csv", "failures.csv", "preset=4g,rate=0.0,seed=1"} <= set(named)
    assert {name for name in named if not name.startswith("runs/")} <= left


DIFFERENCES = {"0.078": ("0.185", "0.107"), "0.255": ("0.362", "0.107")}
"""Figures that sentences of the page quote, each with the two printed figures whose difference it is."""


def figures(text: str) -> set[str]:
    """The numbers with three decimals."""
    return set(re.findall(r"(?<![\w.])\d+\.\d{3}(?!\d)", text))


def test_figures_in_sentences_are_printed_or_follow() -> None:
    printed = figures("".join(block.text for block in blocks(PAGE)))
    said = figures(re.sub(r"^```.*?^```$", "", TEXT, flags=re.M | re.S))
    assert len(said) >= 4
    assert said - printed <= set(DIFFERENCES) <= said
    for figure, (more, less) in DIFFERENCES.items():
        assert {more, less} <= printed
        assert figure == f"{float(more) - float(less):.3f}"
