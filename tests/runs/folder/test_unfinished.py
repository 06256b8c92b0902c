"""A run's folder: tried and taken before anything runs, and left readable by whatever ends the run."""

from __future__ import annotations

import errno
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from simfl.cli import main
from simfl.errors import BadInput
from simfl.runs.folder import disk, result
from simfl.runs.folder.disk import reserve
from simfl.runs.folder.saved_rounds import BASE, NAME
from simfl.runs.folder.unfinished import claim_folder, recover
from simfl.trace import reader as trace_reader
from tests.engine.harness import FILES, ROOT, SIX, SYNC, run
from tests.runs.folder.test_resume import interrupted

TUTORIAL = str(ROOT / "scenarios" / "tutorial.yaml")


def never(*_: Any, **__: Any) -> None:
    raise AssertionError("something ran")


# --- taken before the first event ---------------------------------------------------------------
@pytest.mark.parametrize("name", ["a/b", "x" * 300, "nul\0byte"])
def test_an_impossible_folder_is_refused(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("a file")
    monkeypatch.setattr("simfl.runs.simulation.build", never)
    with pytest.raises(BadInput, match=r"cannot be written|is a file, not a folder"):
        run(out=tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_folder_without_leave_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("simfl.runs.simulation.build", never)
    monkeypatch.setattr(Path, "mkdir", refuse)  # root may write anywhere else
    with pytest.raises(BadInput, match="cannot be written: Read-only file system"):
        run(out=tmp_path / "x")


def test_a_bad_scenario_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        run({"profile": "nosuch"}, out=tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir())


def test_a_folder_at_work_is_refused(tmp_path: Path) -> None:
    with claim_folder(tmp_path / "x"), pytest.raises(BadInput, match="another run is at work here"):
        run(out=tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_an_unfinished_run_is_not_overwritten(tmp_path: Path) -> None:
    assert interrupted(SYNC, {**SIX, "rounds": 8}, tmp_path, resume=False, more=2)
    with pytest.raises(BadInput, match=f"simfl run --resume {tmp_path}"):
        run(out=tmp_path)


def test_reserved_folders_differ(tmp_path: Path) -> None:
    names = [reserve(tmp_path / "runs" / "x").name for _ in range(3)]
    assert names == ["x", "x-2", "x-3"]


@pytest.mark.ci
def test_two_runs_at_once_get_two_folders(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "run.py"), TUTORIAL, "--set", "rounds=1", "--protocols", "fedavg"]
    command += ["--set", "payload=shadow"]
    both = [subprocess.Popen([*command, "--seed", s], cwd=tmp_path, stdout=subprocess.PIPE) for s in "12"]
    for running in both:
        running.communicate(timeout=120)
        assert running.returncode == 0
    seeds = {
        path.name: json.loads((path / "summary.json").read_text())["seed"]
        for path in (tmp_path / "runs").iterdir()
    }
    assert seeds.keys() == {"tutorial", "tutorial-2"}
    assert set(seeds.values()) == {1, 2}


# --- what ends a run ----------------------------------------------------------------------------
def rounds_of(folder: Path) -> int:
    summary = json.loads((folder / "summary.json").read_text())
    return sum(len(protocol["rounds"]) for protocol in summary["protocols"].values())


def ended_by(number: signal.Signals, out: Path, how: list[str]) -> tuple[int, str]:
    """Start a long run, wait until it has saved something, send a signal; returns exit code and errors."""
    command = [sys.executable, str(ROOT / "run.py"), TUTORIAL, "--set", "rounds=5000", "--save-every", "0"]
    command += ["--protocols", "fedavg", "--set", "payload=shadow", "--no-progress", "--out", str(out)]
    running = subprocess.Popen([*how, *command], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    saved, until = out / NAME / BASE, time.monotonic() + 60
    while not (saved.exists() and b'"measured":[' in saved.read_bytes()) and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.05)  # the transaction may not be over
    running.send_signal(number)
    _, errors = running.communicate(timeout=30)
    return running.returncode, errors


@pytest.mark.ci
@pytest.mark.parametrize(
    "how", [[], ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]], ids=["plain", "no SIGINT"]
)
def test_sigterm_ends_a_run_with_143(tmp_path: Path, how: list[str]) -> None:
    code, errors = ended_by(signal.SIGTERM, tmp_path / "r", how)
    assert code == 143, errors
    assert f"simfl run --resume {tmp_path / 'r'} continues" in errors
    assert {path.name for path in (tmp_path / "r").iterdir()} == FILES | {NAME}
    assert 0 < rounds_of(tmp_path / "r") < 5000


@pytest.mark.slow
def test_ten_sigterms_keep_finished_rounds(tmp_path: Path) -> None:
    for k in range(10):
        code, errors = ended_by(signal.SIGTERM, tmp_path / str(k), [])
        assert code == 143, errors
        assert rounds_of(tmp_path / str(k)) > 0


@pytest.mark.ci
def test_a_second_interrupt_while_writing_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one came amid the run; the second comes when half of the files are written."""
    original, out = result.breakdown, tmp_path / "r"

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(result, "breakdown", interrupt)
    over = {**SIX, "rounds": 20, "protocols": ["fedavg"]}
    assert interrupted(SYNC, over, out, resume=False, more=3)
    monkeypatch.setattr(result, "breakdown", original)
    assert not (out / "summary.json").exists()
    assert (out / NAME / BASE).stat().st_size
    recover(out)
    assert rounds_of(out) >= 3
    run(over, out=out, resume=True)
    assert {path.name for path in out.iterdir()} == FILES
    assert rounds_of(out) == 20


@pytest.mark.ci
def test_a_killed_run_can_be_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = ended_by(signal.SIGKILL, tmp_path / "r", [])
    assert code == -signal.SIGKILL
    assert {path.name for path in (tmp_path / "r").iterdir()} == {NAME}
    with pytest.raises(SystemExit) as left:
        main(["report", str(tmp_path / "r")])
    assert left.value.code == 0
    assert "interrupted" in capsys.readouterr().out
    assert rounds_of(tmp_path / "r") > 0


def test_half_written_files_of_a_kill_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".trace.jsonl.abc.writing").write_text("half")
    run(out=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == FILES


@pytest.mark.ci(only=["60000"])
@pytest.mark.parametrize("size", [100, 40_000, 60_000])
def test_a_full_disk_leaves_saved_rounds(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file may grow to this size in bytes."""

    locked = disk.locked

    @contextmanager
    def small(path: Path, busy: str) -> Iterator[sqlite3.Connection]:
        with locked(path, busy) as base:
            base.execute(f"PRAGMA max_page_count = {1 + size // 4096}")
            yield base

    monkeypatch.setattr(disk, "locked", small)
    over = {**SIX, "rounds": 30, "protocols": ["secagg"]}
    with pytest.raises(OSError, match="No space left"):
        run(over, out=tmp_path / "r", save_every_s=0)
    monkeypatch.undo()
    if not (tmp_path / "r").exists():
        assert size < 60_000
        return
    recover(tmp_path / "r")
    finished = rounds_of(tmp_path / "r")
    assert finished > 0
    assert len(trace_reader.read(tmp_path / "r" / "trace.jsonl")["secagg"]) > 0
    run(over, out=tmp_path / "r", resume=True)
    assert rounds_of(tmp_path / "r") == 30


@pytest.mark.ci(only=["400"])
@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk of its own needs root")
@pytest.mark.parametrize("kilobytes", [64, 400])
def test_a_disk_that_is_really_full(tmp_path: Path, kilobytes: int) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", disk], check=False)
    if mounted.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        over = {**SIX, "rounds": 300, "protocols": ["fedavg"]}
        with pytest.raises(OSError, match="No space left"):
            run(over, out=disk / "r", save_every_s=0)
        if (disk / "r" / NAME).exists():
            subprocess.run(["mount", "-o", "remount,size=50m", disk], check=True)
            recover(disk / "r")
            assert rounds_of(disk / "r") > 0
    finally:
        subprocess.run(["umount", disk], check=True)
