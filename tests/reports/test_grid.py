"""What commands print fits 80 columns, on a terminal and off it; colour is for terminals that want it."""

from __future__ import annotations

import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from pathlib import Path

import pytest
from rich.cells import cell_len

from simfl.cli.common import print_paragraph
from tests.docs.pages import ROOT, Command
from tests.docs.shell import Shell

STUDY = """
base: scenarios/tutorial.yaml
set: {payload: shadow, rounds: 1}
grid: {dropout.rate: [0.0, 0.5]}
seeds: 2
"""

LOSSES = "--set rounds=2 --set dropout.rate=[0.0,0.5]"
RUN = f"run scenarios/tutorial.yaml --set payload=shadow {LOSSES} --out runs/a"
TABLES = [RUN, "report runs/a", "sweep study.yaml --jobs 1"]
"""Commands that lay tables out for a terminal; a round of the run is aborted, which is told in colour."""

TEXTS = [
    *(f"list {things}" for things in ("protocols", "datasets", "profiles")),
    "check scenarios/tutorial.yaml",
    "explore lightsecagg --users 3 --random 1",
    "reproduce",
]
SLOW = ["list models", "check scenarios/sync_breakdown.yaml"]  # models are made, to count parameters

COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3\d|4\d|9\d|10\d)(?:;\d+)*m")
STYLE = re.compile(r"\x1b\[[0-9;]*m")

FOLLOW = """
import json, os, sys
from simfl.cli import main
coloured, plain = json.loads(sys.argv[1])
for colour in (True, False):
    os.environ.update({} if colour else {"NO_COLOR": "1"})
    for command in coloured if colour else plain:
        print("$$", colour, command, flush=True)
        out = command.replace("runs/a", f"runs/{colour}")
        try:
            main(out.split())
        except SystemExit as left:
            assert not left.code, left.code
        sys.stdout.flush()
"""


def too_long(command: str, printed: str) -> list[str]:
    """Lines beyond 80 columns; what `check` prints as YAML may be longer."""
    lines = [STYLE.sub("", line) for line in printed.splitlines()]
    if command.startswith("check"):
        lines = [line for line in lines if line.startswith("#")]
    assert lines
    return [line for line in lines if cell_len(line) > 80]


@pytest.mark.ci
@pytest.mark.parametrize(
    "commands", [[*TABLES, "report runs/a --figures", *TEXTS], pytest.param(SLOW, marks=pytest.mark.slow)]
)
def test_off_a_terminal(commands: list[str], shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    (shell.folder / "study.yaml").write_text(STUDY)
    for command in commands:
        printed = shell.run(Command(f"simfl {command}"))
        assert too_long(command, printed) == []
        assert "\x1b" not in printed, command


@pytest.mark.ci
@pytest.mark.parametrize("commands", [TABLES, pytest.param([*TABLES, *TEXTS, *SLOW], marks=pytest.mark.slow)])
def test_on_a_terminal(commands: list[str], tmp_path: Path) -> None:
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    (tmp_path / "study.yaml").write_text(STUDY)
    plain = TABLES[:1]
    printed = on_terminal(tmp_path, [sys.executable, "-c", FOLLOW, json.dumps([commands, plain])])
    parts = re.findall(r"^\$\$ (True|False) ([^\r\n]*)\r?\n(.*?)(?=^\$\$ |\Z)", printed, re.M | re.S)
    assert [command for _, command, _ in parts] == [*commands, *plain]
    for colour, command, text in parts:
        assert too_long(command, text) == []
        assert "\x1b[1A" not in text  # progress goes to stderr
        if colour == "False":
            assert not COLOUR.search(text), command
    assert COLOUR.search(parts[0][2]), "an aborted round is told in colour on a terminal"


def on_terminal(folder: Path, command: list[str]) -> str:
    """What a command prints on a terminal of 80 columns. It must end well."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 80, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    environment |= {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
    errors = folder / "errors"
    with errors.open("w") as stderr:
        running = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=stderr, cwd=folder, env=environment
        )
        os.close(theirs)
        chunks = []
        try:
            while chunk := os.read(ours, 65536):
                chunks.append(chunk)
        except OSError:  # Linux says so when the other end is closed
            pass
        os.close(ours)
    assert running.wait() == 0, errors.read_text()
    return b"".join(chunks).decode()


def test_a_paragraph_is_wrapped_and_no_word_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    print_paragraph("name: " + "some-words " * 12 + "x" * 90, indent="  ")
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == "name: " + " ".join(["some-words"] * 6)
    assert second == "  " + " ".join(["some-words"] * 6)
    assert third == "  " + "x" * 90
