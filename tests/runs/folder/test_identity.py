"""A run is named for its resolved scenario, the files that this names, and the code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simfl.runs.folder import identity as module
from simfl.runs.folder.identity import code_version, differences, scenario_key
from simfl.scenario.load import load
from tests.engine.harness import ROOT
from tests.studies.sweep.small import BASE


def test_a_cell_is_named_for_its_resolved_scenario_and_the_code() -> None:
    plain = scenario_key(load(BASE), "1")
    assert plain == scenario_key(load({**BASE, "overlap": True}), "1")  # a default, written out
    assert plain != scenario_key(load(BASE, seed=6), "1")
    assert plain != scenario_key(load(BASE, {"network.overhead_s": 0.0010000001}), "1")
    assert plain != scenario_key(load(BASE), "2")


@pytest.mark.ci
def test_the_name_is_the_same_in_another_process() -> None:
    """Whatever its hash seed: this one's is random."""
    code = "from simfl.runs.folder.identity import *; from simfl.scenario.load import load\n"
    code += f"print(scenario_key(load({BASE!r}), '1'), code_version())"
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.stdout.split() == [scenario_key(load(BASE), "1"), code_version()], done.stderr


def test_a_file_that_the_scenario_names_counts_by_its_content(tmp_path: Path) -> None:
    def key(name: str, text: str, path: str, **more: str) -> str:
        (tmp_path / name).write_text(text)
        return scenario_key(load(BASE, {path: {"file": str(tmp_path / name), **more}}), "1")

    for path, more in (
        ("population.availability", {"kind": "trace"}),
        ("population.devices.slowdown", {"column": "x"}),
    ):
        assert key("a.csv", "x\n9\n", path, **more) == key("b.csv", "x\n9\n", path, **more)
        assert key("a.csv", "x\n8\n", path, **more) != key("b.csv", "x\n9\n", path, **more)


def test_so_does_a_profile_and_a_recording(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    profile = tmp_path / "my.yaml"
    recorded = tmp_path / "run" / "trace.jsonl"
    for file, overrides in (
        (profile, {"profile": str(profile)}),
        (recorded, {"clock": {"recorded": str(tmp_path / "run")}}),
    ):
        keys = []
        for text in ("1", "2", "1"):
            file.write_text(text)
            keys.append(scenario_key(load(BASE, overrides), "1"))
        assert keys[0] == keys[2] != keys[1], file


def test_the_codes_version_changes_with_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a copy: one byte more anywhere, or the same bytes under another name."""
    at = tmp_path / "simfl" / "runs" / "folder" / "identity.py"
    at.parent.mkdir(parents=True)
    at.write_text("a")
    other = tmp_path / "simfl" / "engine.py"
    monkeypatch.setattr(module, "__file__", str(at))
    seen = set()
    for name, text in ((other, "x"), (other, "xy"), (tmp_path / "simfl" / "p.yaml", "z")):
        name.write_text(text)
        code_version.cache_clear()
        seen.add(code_version())
    other.rename(other.with_name("motor.py"))
    code_version.cache_clear()
    seen.add(code_version())
    code_version.cache_clear()
    assert len(seen) == 4
    assert all(version.startswith("0.1.0+") for version in seen)


def test_differences_name_the_keys_and_both_values() -> None:
    then = {"rounds": 5, "network": {"users": {"preset": "4g"}}, "seed": 1}
    now = {"rounds": 6, "network": {"users": {"preset": "4g"}}, "buffer": None}
    assert differences(then, now) == ["rounds: 5 then, 6 now", "seed: 1 then, None now"]
