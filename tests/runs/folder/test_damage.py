"""Each file of an unfinished run, damaged: it is named with its line or array, and nothing is changed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from simfl.cli import main
from simfl.config.digests import SUMS, Damaged
from simfl.errors import BadInput
from simfl.runs.folder.unfinished import NAME, recover
from simfl.runs.simulation import run as simulate
from tests.engine.harness import FILES, SIX, SYNC, run
from tests.runs.folder.test_resume import interrupted

OVER = {**SIX, "learning.server": "fedadam", "protocols": ["secagg"], "record_updates": True, "rounds": 5}


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three of five rounds of six users, with models, moments and recorded updates."""
    folder = tmp_path_factory.mktemp("unfinished") / "run"
    assert interrupted(SYNC, OVER, folder, resume=False, more=3)
    return folder


@pytest.fixture
def half(unfinished: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    return Path(shutil.copytree(unfinished, tmp_path / "run"))


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def lines_of(name: str, change: Callable[[list[str]], list[str]]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / name
        path.write_text("".join(change(path.read_text().splitlines(keepends=True))))

    return damage


def model(folder: Path) -> Path:
    return sorted((folder / "models").glob("secagg.[0-9].npy"))[-1]


def flip_a_model(folder: Path) -> None:
    array = np.load(model(folder))
    array[0, 3] += 1
    np.save(model(folder), array)


def as_pipe(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return damage


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a changed model": (flip_a_model, r"models/secagg\.[34]\.npy: not as it was written"),
    "an empty model": (lambda f: model(f).write_bytes(b""), r"secagg\.[34]\.npy: not as it was written"),
    "no model": (lambda f: model(f).unlink(), r"secagg\.[34]\.npy: is missing"),
    "empty moments": (
        lambda f: next(f.glob("models/secagg.moments.*")).write_bytes(b"") and None,
        r"secagg\.moments\.[0-9]\.npy: not as it was written",
    ),
    "an update of another round": (
        lambda f: shutil.copy(f / "updates/secagg.0.npz", f / "updates/secagg.1.npz") and None,
        r"updates/secagg\.1\.npz: not as it was written",
    ),
    "a digit of a line": (
        lines_of("journal.jsonl", lambda ls: [ls[0], ls[1].replace('"loss":', '"loss":1'), *ls[2:]]),
        r"journal\.jsonl:2: not as it was written",
    ),
    "a removed line": (lines_of("journal.jsonl", lambda ls: [ls[0], *ls[2:]]), r"journal\.jsonl:2: not"),
    "a doubled line": (lines_of("journal.jsonl", lambda ls: [*ls, ls[-1]]), r"journal\.jsonl:[45]: not"),
    "two swapped lines": (lines_of("journal.jsonl", lambda ls: [ls[1], ls[0], *ls[2:]]), r"jsonl:1: not"),
    "a journal of text": (lambda f: (f / "journal.jsonl").write_text("[]\n") and None, r"jsonl:1: not"),
    "a digit of the trace": (
        lines_of("trace.jsonl", lambda ls: [*ls[:9], ls[9].replace('"cause":', '"cause":1', 1), *ls[10:]]),
        r"trace\.jsonl: not as it was written: the SHA-256 of lines 1 to [0-9]+ is not",
    ),
    "a shorter trace": (lines_of("trace.jsonl", lambda ls: ls[:-20]), r"trace\.jsonl: not as it was written"),
    "nested brackets": (lambda f: (f / "run.json").write_text("[" * 100_000) and None, r"run\.json: not as"),
    "a pipe as the journal": (as_pipe("journal.jsonl"), r"journal\.jsonl: is not a regular file"),
    "a pipe as the scenario": (as_pipe("scenario.yaml"), r"scenario\.yaml: is not a regular file"),
    "another scenario": (
        lines_of("scenario.yaml", lambda ls: [line.replace("seed: 5", "seed: 6") for line in ls]),
        r"scenario\.yaml: not as it was written",
    ),
}


@pytest.mark.ci(but=["no model"])
@pytest.mark.parametrize("case", DAMAGES)
def test_damage_is_named_and_nothing_is_changed(
    case: str, half: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, message = DAMAGES[case]
    change(half / NAME)
    before = content(half)
    with pytest.raises(SystemExit) as left:
        main(["run", "--no-progress", "--resume", str(half)])
    errors = capsys.readouterr().err
    assert left.value.code == 2, errors
    with pytest.raises(Damaged, match=message):
        raise Damaged(Path(), errors)
    assert errors.count("\n") == 1
    assert content(half) == before


def test_damage_is_found_before_anything_is_built(half: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flip_a_model(half / NAME)
    monkeypatch.setattr("simfl.runs.simulation.build", lambda scenario: pytest.fail("it was built"))
    with pytest.raises(Damaged, match="secagg"):
        run(OVER, out=half, resume=True)


@pytest.mark.ci
def test_an_undamaged_copy_is_resumed(half: Path) -> None:
    run(OVER, out=half, resume=True)
    assert {path.name for path in half.iterdir()} == FILES | {"updates-secagg.npz"}


def test_the_journal_loses_its_end_as_by_a_kill(half: Path, tmp_path: Path) -> None:
    """The last record is gone, and with it its model: the message names the array."""
    journal = half / NAME / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().rpartition(b'{"chain"')[0])
    with pytest.raises(Damaged, match=r"models/secagg\.[0-9.]+npy: is missing"):
        run(OVER, out=half, resume=True)


def test_a_run_saved_by_an_earlier_simfl_is_not_resumed(half: Path) -> None:
    """It has no digests. What it had written stays."""
    (half / NAME / SUMS).unlink()
    before = content(half)
    for resume in (lambda: run(OVER, out=half, resume=True), lambda: recover(half)):
        with pytest.raises(BadInput, match="has no SHA256SUMS: an earlier simfl saved it"):
            resume()
    assert content(half) == before


def test_a_report_of_an_earlier_simfls_folder_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(out=tmp_path / "old")
    (tmp_path / "old" / SUMS).unlink()
    with pytest.raises(SystemExit) as left:
        main(["report", str(tmp_path / "old")])
    assert left.value.code == 0
    out, errors = capsys.readouterr()
    assert "Written to" in out
    assert errors.startswith(f"simfl: no SHA256SUMS in {tmp_path / 'old'}: ")


def test_a_table_may_be_edited_and_a_summary_not(tmp_path: Path) -> None:
    run(out=tmp_path / "run")
    (tmp_path / "run" / "breakdown.csv").write_text("mine")
    with pytest.raises(SystemExit) as left:
        main(["report", str(tmp_path / "run")])
    assert left.value.code == 0
    summary = tmp_path / "run" / "summary.json"
    summary.write_text(json.dumps(json.loads(summary.read_text())))
    with pytest.raises(SystemExit) as left:
        main(["report", str(tmp_path / "run")])
    assert left.value.code == 2


def test_a_recorded_clock_is_compared_with_its_digest(tmp_path: Path) -> None:
    run(out=tmp_path / "run")
    trace = tmp_path / "run" / "trace.jsonl"
    trace.write_text(trace.read_text().replace("0", "1", 1))
    with pytest.raises(BadInput, match=r"clock: .*trace\.jsonl: not as it was written"):
        simulate({**SYNC, "clock": f"recorded:{tmp_path / 'run'}"})
