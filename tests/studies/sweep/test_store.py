"""Cells on disk: named for what decides them, whole or not there, written by one sweep at a time."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from simfl.config.digests import SUMS, Damaged, of_bytes
from simfl.errors import BadInput
from simfl.studies.sweep.store import ABOUT, PARTIAL_PREFIX, Store

CELL = {"summary.json": '{"a": 1}\n', "breakdown.csv": "x\r\n1\r\n"}
NEEDED = tuple(CELL)


def written(folder: Path) -> Store:
    store = Store(folder)
    with store.locked():
        store.write("k", CELL, {"took_s": 1.5})
    return store


# --- whole or not there -------------------------------------------------------------------------
def test_a_cell_that_was_written_is_there(tmp_path: Path) -> None:
    store = written(tmp_path / "new" / "sweep")
    assert store.has("k")
    assert store.verify("k", NEEDED)
    assert not store.verify("k", (*NEEDED, "trace.jsonl"))
    assert not store.verify("other", NEEDED)
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
        ("summary.json", '{"a"', "summary.json: not as it was written"),
        ("summary.json", '{"a": 2}\n', "summary.json: not as it was written"),
        ("breakdown.csv", None, "breakdown.csv: is missing"),
        (SUMS, "{", "SHA256SUMS: not as it was written"),
        (SUMS, None, "SHA256SUMS: is missing"),
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


@pytest.mark.parametrize(("of", "call", "calls"), [(Path, "open", 3), (os, "fsync", 6), (os, "rename", 1)])
def test_a_writer_that_stops_leaves_nothing_half_written(
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
        assert store.has("new") == (count == 6)  # it was in its place before the last call
        with store.locked():
            assert not list(store.cells.glob(f"{PARTIAL_PREFIX}*"))
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
def test_a_file_in_place_of_a_cell_is_replaced(tmp_path: Path, what: str) -> None:
    """A link's target is not touched."""
    store, theirs = written(tmp_path), elsewhere(tmp_path)
    STRANGERS[what](store.cells / "new", theirs)
    with pytest.raises(Damaged, match=r"is a link or a file|SHA256SUMS: is missing"):
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
def test_leftovers_of_a_killed_writer_are_removed(tmp_path: Path, what: str) -> None:
    store, theirs = written(tmp_path), elsewhere(tmp_path)
    STRANGERS[what](store.cells / f"{PARTIAL_PREFIX}abc-old", theirs)
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
def test_a_file_in_place_of_the_store_is_named(tmp_path: Path, name: str) -> None:
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
    line = f"{of_bytes(b'x')}  ../../x\n"
    (store.cells / "k" / SUMS).write_text(f"{line}# {of_bytes(line.encode())}\n")
    with pytest.raises(Damaged, match="SHA256SUMS: not as it was written"):
        store.verify("k", NEEDED)


# --- one at a time ------------------------------------------------------------------------------
def test_a_second_sweep_is_refused_and_touches_nothing(tmp_path: Path) -> None:
    """A lock is of a file as opened, so that a second one in this process is as good as another's."""
    with Store(tmp_path).locked():
        half = tmp_path / "cells" / f"{PARTIAL_PREFIX}abc"
        half.mkdir()
        with pytest.raises(BadInput, match="another sweep is at work here"), Store(tmp_path).locked():
            pass
        assert half.is_dir()
    with Store(tmp_path).locked():
        assert not half.exists()
