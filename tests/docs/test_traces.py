"""docs/traces.md: its commands run, its columns are those written, its scenarios load and run.

A program of docs.tools writes the shipped traces, so that none of them can be taken for a measurement.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.docs.pages import ROOT, Command, blocks, differs, session
from tests.docs.shell import Shell
from tests.scenario.worlds import SYNC

PAGE = ROOT / "docs" / "traces.md"
TEXT = PAGE.read_text(encoding="utf-8")
DAYS = 259_200


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """A folder with small recordings under the page's names, after the page's commands."""
    behave = {
        key: {"duration": DAYS, "active": [0], "inactive": [DAYS], "finish_time": DAYS, "model": "m"}
        for key in range(1, 6)
    }
    capacity = {
        key: {"computation": np.float64(20 * key), "communication": np.float64(1000 * key)}
        for key in range(1, 8)
    }
    (tmp_path / "client_behave_trace").write_bytes(pickle.dumps(behave, 3))
    (tmp_path / "client_device_capacity").write_bytes(pickle.dumps(capacity, 3))
    (tmp_path / "Verizon-LTE-short.up").write_text("1\n")
    (tmp_path / "Verizon-LTE-short.down").write_text("1\n1\n2\n2500\n")
    (tmp_path / "mobile.csv").write_text(
        "Name,Avg. Avg U Kbps,Avg. Avg D Kbps,Avg Lat Ms\nPeru,1000,2500,40\nNauru,,1,2\n"
    )
    shell = Shell(tmp_path, monkeypatch, capsys)
    (block,) = blocks(PAGE, "console")
    commands = list(session(block))
    assert len(commands) == 3
    for command in commands:
        printed = shell.run(command)
        assert not (wrong := differs(command.prints, printed)), f"{wrong}\n{printed}"
    return shell


def test_its_tables_name_every_column(shell: Shell) -> None:
    """In the order of the page: FedScale's, mahimahi's, Ookla's."""
    files = re.findall(r"\*\*`(\w+)\.csv`\*\*(.*?)(?=\n\*\*`|\n## |\Z)", TEXT, re.S)
    folders = ["traces", "traces", "traces", "traces", "ookla"]
    assert [name for name, _ in files] == ["online", "devices", "capacity", "rates", "capacity"]
    for folder, (name, text) in zip(folders, files, strict=True):
        header = (shell.folder / folder / f"{name}.csv").read_text().partition("\n")[0].split(",")
        table = "\n".join(line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `"))
        shown = re.findall(r"`(\w+)`", table or text.partition("\n\n")[0])
        assert shown == header


@pytest.mark.ci
def test_its_scenarios_run(shell: Shell) -> None:
    shown = [yaml.safe_load(block.text) for block in blocks(PAGE, "yaml")]
    assert len(shown) == 2
    for keys in shown:
        scenario: dict[str, Any] = yaml.safe_load(SYNC)
        for part, values in keys.items():
            scenario[part] |= values
        (shell.folder / "s.yaml").write_text(yaml.safe_dump(scenario))
        small = "--set population.users=100 --set rounds=1 --set payload=shadow --protocols fedavg"
        printed = shell.run(Command(f"simfl run s.yaml {small}"))
        assert re.search(r"completed +│ +1 of 1", printed), printed


def test_the_shipped_traces_are_what_it_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec((ROOT / "docs" / "tools" / "invented_traces.py").read_text(encoding="utf-8"), {})
    shipped = {path.name: path.read_text() for path in (ROOT / "scenarios" / "traces").iterdir()}
    assert shipped == {path.name: path.read_text() for path in tmp_path.iterdir()}
    shown = re.findall(r"^\| `(\w+\.csv)` \|", TEXT.partition("## The traces beside the scenarios")[2], re.M)
    assert set(shown) == set(shipped)
