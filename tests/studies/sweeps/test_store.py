"""Cells on disk: named for what decides them, whole or not there, written by one sweep at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from simfl.errors import BadInput
from simfl.scenario.load import load
from simfl.studies.sweeps import store as module
from simfl.studies.sweeps.store import ABOUT, HALF, Damaged, Store, cell_key, code_version
from tests.engine.harness import ROOT
from tests.studies.sweeps.small import BASE

CELL = {"summary.json": '{"a": 1}\n', "breakdown.csv": "x\r\n1\r\n"}
NEEDED = tuple(CELL)


def written(folder: Path) -> Store:
    store = Store(folder)
    with store.locked():
        store.write("k", CELL, {"took_s": 1.5})
    return store


# --- names --------------------------------------------------------------------------------------
def test_a_cell_is_named_for_its_resolved_scenario_and_the_code() -> None:
    plain = cell_key(load(BASE), "1")
    assert plain == cell_key(load({**BASE, "overlap": True}), "1")  # a default, written out
    assert plain != cell_key(load(BASE, seed=6), "1")
    assert plain != cell_key(load(BASE, {"network.overhead_s": 0.0010000001}), "1")
    assert plain != cell_key(load(BASE), "2")


def test_the_name_is_the_same_in_another_process() -> None:
    """Whatever its hash seed: this one's is random."""
    code = "from simfl.studies.sweeps.store import *; from simfl.scenario.load import load\n"
    code += f"print(cell_key(load({BASE!r}), '1'), code_version())"
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.stdout.split() == [cell_key(load(BASE), "1"), code_version()], done.stderr


def test_a_file_that_the_scenario_names_counts_by_its_content(tmp_path: Path) -> None:
    def key(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return cell_key(load(BASE, {"population.availability": {"trace": str(tmp_path / name)}}), "1")

    assert key("a.csv", "user,from_s,to_s\n0,0,9\n") == key("b.csv", "user,from_s,to_s\n0,0,9\n")
    assert key("a.csv", "user,from_s,to_s\n0,0,8\n") != key("b.csv", "user,from_s,to_s\n0,0,9\n")


def test_so_does_a_module_a_profile_and_a_recording(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    own = tmp_path / "my.py"
    profile = tmp_path / "my.yaml"
    recorded = tmp_path / "run" / "trace.jsonl"
    for file, overrides in (
        (own, {"learning.model": {"module": f"{own}:build"}}),
        (profile, {"profile": str(profile)}),
        (recorded, {"clock": {"recorded": str(tmp_path / "run")}}),
    ):
        keys = []
        for text in ("1", "2", "1"):
            file.write_text(text)
            keys.append(cell_key(load(BASE, overrides), "1"))
        assert keys[0] == keys[2] != keys[1], file


def test_the_codes_version_changes_with_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a copy: one byte more anywhere, or the same bytes under another name."""
    at = tmp_path / "simfl" / "studies" / "sweeps" / "store.py"
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


# --- whole or not there -------------------------------------------------------------------------
def test_a_cell_that_was_written_is_there(tmp_path: Path) -> None:
    store = written(tmp_path / "new" / "sweep")
    assert store.has("k")
    assert store.verify("k", NEEDED)
    assert not store.verify("k", (*NEEDED, "trace.jsonl"))
    assert not store.verify("other", NEEDED)
    assert store.summary("k") == {"a": 1}
    assert (store.cells / "k" / "breakdown.csv").read_bytes() == b"x\r\n1\r\n"
    about = json.loads((store.cells / "k" / ABOUT).read_text())
    assert about["took_s"] == 1.5
    assert [path.name for path in store.cells.iterdir()] == ["k"]


def test_a_cell_can_be_replaced(tmp_path: Path) -> None:
    store = written(tmp_path)
    with store.locked():
        store.write("k", {**CELL, "trace.jsonl": "t\n"}, {})
    assert store.verify("k", (*NEEDED, "trace.jsonl"))
    assert [path.name for path in store.cells.iterdir()] == ["k"]


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("summary.json", '{"a"', "summary.json is not as it was written"),
        ("summary.json", '{"a": 2}\n', "summary.json is not as it was written"),
        ("breakdown.csv", None, "breakdown.csv is missing"),
        (ABOUT, "{", "about.json cannot be read"),
        (ABOUT, "[]", "about.json cannot be read"),
        (ABOUT, None, "about.json is missing"),
    ],
)
def test_damage_is_seen(tmp_path: Path, name: str, content: str | None, why: str) -> None:
    store = written(tmp_path)
    file = store.cells / "k" / name
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    with pytest.raises(Damaged, match=why):
        store.verify("k", NEEDED)


def stopping(original: Any, count: int) -> Any:
    """Stops its caller at the call of this number."""
    calls = 0

    def stop(*arguments: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count:
            raise KeyboardInterrupt
        return original(*arguments, **more)

    return stop


@pytest.mark.parametrize(("of", "call", "calls"), [(Path, "open", 3), (os, "fsync", 5), (os, "rename", 1)])
def test_a_writer_that_stops_anywhere_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: Any, call: str, calls: int
) -> None:
    """As if killed at each of its calls that touch the disk; the next one with the lock clears up."""
    store = written(tmp_path)
    for count in range(1, calls + 1):
        with monkeypatch.context() as patch, store.locked():
            patch.setattr(of, call, stopping(getattr(of, call), count))
            with pytest.raises(KeyboardInterrupt):
                store.write("new", CELL, {})
        assert store.verify("k", NEEDED)
        assert store.has("new") == (count == 5)  # it was in its place before the last call
        with store.locked():
            assert not list(store.cells.glob(f"{HALF}*"))
    with store.locked():
        store.write("new", CELL, {})
    assert store.verify("new", NEEDED)


# --- what is not a sweep's ----------------------------------------------------------------------
def elsewhere(folder: Path) -> Path:
    """A folder of somebody's with a file in it."""
    (folder / "theirs").mkdir(parents=True)
    (folder / "theirs" / "kept.txt").write_text("kept")
    return folder / "theirs"


STRANGERS: dict[str, Any] = {
    "a link to a folder": lambda place, theirs: place.symlink_to(theirs),
    "a link to a file": lambda place, theirs: place.symlink_to(theirs / "kept.txt"),
    "a link to a cell": lambda place, theirs: place.symlink_to(place.with_name("k")),
    "a broken link": lambda place, theirs: place.symlink_to(theirs / "nowhere"),
    "a file": lambda place, theirs: place.write_text("x"),
    "an empty folder": lambda place, theirs: place.mkdir(),
}


@pytest.mark.parametrize("what", STRANGERS)
def test_what_is_in_a_cells_place_is_replaced(tmp_path: Path, what: str) -> None:
    """A link's target is not touched."""
    store, theirs = written(tmp_path), elsewhere(tmp_path)
    STRANGERS[what](store.cells / "new", theirs)
    with pytest.raises(Damaged, match=r"a link or a file is in its place|about\.json is missing"):
        store.verify("new", NEEDED)
    assert store.has("new") == (what == "an empty folder")
    with store.locked():
        store.write("new", CELL, {})
    assert store.verify("new", NEEDED)
    assert store.verify("k", NEEDED)
    assert not (store.cells / "new").is_symlink()
    assert sorted(path.name for path in store.cells.iterdir()) == ["k", "new"]
    assert (theirs / "kept.txt").read_text() == "kept"


@pytest.mark.parametrize("what", STRANGERS)
def test_what_a_killed_writer_put_aside_is_removed(tmp_path: Path, what: str) -> None:
    store, theirs = written(tmp_path), elsewhere(tmp_path)
    STRANGERS[what](store.cells / f"{HALF}abc-old", theirs)
    with store.locked():
        assert [path.name for path in store.cells.iterdir()] == ["k"]
    assert (theirs / "kept.txt").read_text() == "kept"


def test_a_link_in_a_folder_that_is_replaced_is_not_followed(tmp_path: Path) -> None:
    store, theirs = written(tmp_path), elsewhere(tmp_path)
    (store.cells / "k" / "more").symlink_to(theirs)
    with store.locked():
        store.write("k", CELL, {})
    assert (theirs / "kept.txt").read_text() == "kept"


@pytest.mark.parametrize("name", ["cells", ".lock"])
def test_what_is_in_the_stores_own_place_is_named(tmp_path: Path, name: str) -> None:
    kept = elsewhere(tmp_path) / "kept.txt"
    if name == "cells":
        (tmp_path / name).write_text("x")
    else:
        (tmp_path / name).symlink_to(kept)
    with pytest.raises(BadInput, match=f"{name} is .*: remove it"), Store(tmp_path).locked():
        pass
    assert kept.read_text() == "kept"


def test_a_cells_files_are_looked_for_in_it_only(tmp_path: Path) -> None:
    """Reading one such as /dev/zero would not end."""
    store = written(tmp_path)
    about = store.cells / "k" / ABOUT
    about.write_text(json.dumps({"sha256": {"../../x": "0", **dict.fromkeys(NEEDED, "0")}}))
    with pytest.raises(Damaged, match=r"about\.json cannot be read"):
        store.verify("k", NEEDED)


# --- one at a time ------------------------------------------------------------------------------
def test_a_second_sweep_is_refused_and_touches_nothing(tmp_path: Path) -> None:
    """A lock is of a file as opened, so that a second one in this process is as good as another's."""
    with Store(tmp_path).locked():
        half = tmp_path / "cells" / f"{HALF}abc"
        half.mkdir()
        with pytest.raises(BadInput, match="another sweep is at work here"), Store(tmp_path).locked():
            pass
        assert half.is_dir()
    with Store(tmp_path).locked():
        assert not half.exists()
