"""Digests of files: each changed byte is found, and named."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from simfl.cli.common import name_unchecked_folders
from simfl.config.digests import (
    SUMS,
    Damaged,
    check_all,
    checked,
    listed,
    manifest,
    names_in,
    take_unchecked,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files and their digests."""
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(name * 3)
    (tmp_path / SUMS).write_text(manifest(tmp_path, ("b.txt", "a.txt")))
    return tmp_path


# --- files ---------------------------------------------------------------------------------------
def test_sha256sum_takes_the_manifest(folder: Path) -> None:
    """The comment with the manifest's own digest is no line to it."""
    command = ["sha256sum", "--strict", "-c", SUMS]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "a.txt: OK\nb.txt: OK\n", "")
    assert check_all(folder) == {"a.txt", "b.txt"}


def test_each_flipped_bit_of_a_manifest_is_found(folder: Path) -> None:
    content = (folder / SUMS).read_bytes()
    for place in range(len(content)):
        (folder / SUMS).write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(Damaged, match="SHA256SUMS: not as it was written"):
            listed(folder)


def test_a_file_that_was_changed_is_named(folder: Path) -> None:
    (folder / "a.txt").write_text("x")
    assert checked(folder / "b.txt") == folder / "b.txt"
    with pytest.raises(Damaged, match=r"a\.txt: not as it was written.*; restore it from a copy"):
        checked(folder / "a.txt")
    (folder / "c.txt").write_text("x")
    with pytest.raises(Damaged, match=r"c\.txt: has no line in SHA256SUMS"):
        checked(folder / "c.txt")


@pytest.mark.parametrize("name", ["a.txt", SUMS])
def test_a_pipe_is_not_read(folder: Path, name: str) -> None:
    """Reading it would wait for a writer."""
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(Damaged, match="is not a regular file"):
        checked(folder / "a.txt")


def test_a_listed_file_that_is_gone_is_still_listed(folder: Path) -> None:
    (folder / "a.txt").unlink()
    (folder / "z.txt").write_text("not listed")
    assert names_in(folder, "*.txt") == [folder / "a.txt", folder / "b.txt"]


def test_a_folder_without_digests_is_read_and_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    take_unchecked()
    (folder / SUMS).unlink()
    with name_unchecked_folders():
        checked(folder / "a.txt")
        checked(folder / "b.txt")
    reason = "files of an earlier simfl, or made by hand, are read unchecked"
    assert capsys.readouterr().err == f"simfl: no SHA256SUMS in {folder}: {reason}\n"
    assert take_unchecked() == []
