"""Digests of files and of chained records: each changed byte is found, and named."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from simfl.cli.common import naming_unchecked
from simfl.config.digests import (
    SUMS,
    Damaged,
    chained,
    check_all,
    checked,
    listed,
    manifest,
    names_in,
    take_unchecked,
    unchained,
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
    with naming_unchecked():
        checked(folder / "a.txt")
        checked(folder / "b.txt")
    reason = "files of an earlier simfl, or made by hand, are read unchecked"
    assert capsys.readouterr().err == f"simfl: no SHA256SUMS in {folder}: {reason}\n"
    assert take_unchecked() == []


# --- records -------------------------------------------------------------------------------------
RECORDS = ['{"round":0}', '{"round":1}', '{"round":1}', '{"round":2,"name":"\\u00e9"}']


def lines() -> list[bytes]:
    """The records as lines, the first after "start"."""
    out, digest = [], "start"
    for text in RECORDS:
        line, digest = chained(text, digest)
        out.append(line.encode().removesuffix(b"\n"))
    return out


def intact(written: list[bytes], first: str = "start") -> int:
    """Return how many lines are read before the first that is refused."""
    digest = first
    for number, line in enumerate(written):
        record = unchained(line, digest)
        if record is None:
            return number
        assert record[0].decode() in RECORDS
        digest = record[1]
    return len(written)


def test_records_are_read_back() -> None:
    assert intact(lines()) == len(RECORDS)
    assert intact(lines(), "another start") == 0


def test_each_flipped_bit_of_a_record_is_found() -> None:
    written = lines()
    for number, line in enumerate(written):
        for place in range(len(line)):
            for bit in (1, 32):
                flipped = line[:place] + bytes([line[place] ^ bit]) + line[place + 1 :]
                assert intact([*written[:number], flipped, *written[number + 1 :]]) == number


def test_removed_doubled_and_swapped_records_are_found() -> None:
    one, two, three, four = lines()
    assert intact([one, three, four]) == 1
    assert intact([two, three, four]) == 0
    assert intact([one, one, two]) == 1
    assert intact([one, two, two, three]) == 2
    assert intact([one, three, two, four]) == 1
    assert intact([one, two]) == 2  # as after a kill
