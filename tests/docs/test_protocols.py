"""docs/protocols.md: its protocol is built in a copy of the source, run, and tested by the page's test."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, Command, blocks, differs, session

PAGE = ROOT / "docs" / "protocols.md"
CHANGED = ("simfl/protocols", "simfl/scenario", "scenarios", "tests/protocols")
"""Folders in which the page changes or adds files; all else is linked to, numba's cache included."""

FOLLOW = """
import json, sys
import pytest
from simfl.cli import main
for arguments in json.loads(sys.argv[1]):
    print("$", flush=True)
    if arguments[0] == "pytest":
        assert pytest.main(["-p", "no:cacheprovider", "-o", "addopts=", *arguments[1:]]) == 0
        continue
    try:
        main(arguments)
    except SystemExit as left:
        assert not left.code, left.code
"""
"""What runs the page's commands, in one process: torch is imported once."""


def link_all(source: Path, target: Path) -> None:
    """A folder of links to what is in another, where folders that are changed are such folders too."""
    target.mkdir()
    for path in source.iterdir():
        inside = str(path.relative_to(ROOT))
        if path.name == "__pycache__" or path.name.startswith("."):
            continue
        if path.is_dir() and any(changed.startswith(inside) for changed in CHANGED):
            link_all(path, target / path.name)
        else:
            (target / path.name).symlink_to(path)


def apply(copy: Path, block: Block) -> None:
    """Carry out a block: a diff, whose old lines must be there exactly once, or a whole file."""
    if block.language == "diff":
        head, *lines = block.text.splitlines()
        file = copy / head.removeprefix("--- ")
        old = "\n".join(line[1:] for line in lines if line[0] in " -")
        new = "\n".join(line[1:] for line in lines if line[0] in " +")
        text = file.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{head}: {old!r} is there {text.count(old)} times"
        file.unlink()  # a link to the real one
        file.write_text(text.replace(old, new), encoding="utf-8")
        return
    name, _, text = block.text.partition("\n")
    file = copy / name.removeprefix("# ")
    assert not file.exists()
    file.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Command, str]]:
    """What each command of the page printed, by its line."""
    copy = tmp_path_factory.mktemp("page") / "simfl"
    link_all(ROOT, copy)
    commands: list[Command] = []
    for block in blocks(PAGE):
        if block.language == "console":
            commands += session(block)
        else:
            apply(copy, block)
    arguments = [command.simfl or command.line.split()[2:] for command in commands]
    more = [["run", "scenarios/dealt_pads.yaml", "--set", "payload=shadow", "--out", "runs/shadow"]]
    environment = {**os.environ, "PYTHONPATH": str(copy), "COLUMNS": "80"}
    words = [sys.executable, "-c", FOLLOW, json.dumps(arguments + more)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=copy, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = done.stdout.split("$\n")[1:]
    real, shadow = (copy / "runs" / name / "trace.jsonl" for name in ("dealt_pads", "shadow"))
    assert real.read_bytes() == shadow.read_bytes()
    return {command.line: (command, text) for command, text in zip(commands, printed, strict=False)}


def test_its_commands_print_what_the_page_shows(followed: dict[str, tuple[Command, str]]) -> None:
    assert len(followed) == 2
    for command, printed in followed.values():
        assert not (wrong := differs(command.prints, re.sub(r" in [0-9.]+s", "", printed))), (
            f"{wrong}\n{printed}"
        )


def test_its_sums_are_exact_and_a_user_is_lost(followed: dict[str, tuple[Command, str]]) -> None:
    _, printed = followed["python run.py scenarios/dealt_pads.yaml"]
    rows = {line.split("│")[0].strip(): line.split("│")[1:] for line in printed.splitlines() if "│" in line}
    assert [cell.strip() for cell in rows["aggregates exact"]] == ["2 of 2"] * 3
    assert [cell.strip() for cell in rows["users lost"]] == ["1"] * 3


def test_its_test_ran(followed: dict[str, tuple[Command, str]]) -> None:
    _, printed = followed["python -m pytest -q tests/protocols/test_dealt_pads.py"]
    assert "6 passed" in printed
