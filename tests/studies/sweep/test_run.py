"""What a sweep runs, keeps and does not run again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import simfl
from simfl.config.digests import SUMS
from simfl.errors import RunFailed
from simfl.studies.sweep import run as module
from simfl.studies.sweep.plan import make_plan
from simfl.studies.sweep.run import Sweep
from simfl.studies.sweep.store import Store
from simfl.studies.workers import in_line
from simfl.trace import reader as trace_reader
from tests.studies.sweep.small import BASE, files, study, swept


@pytest.mark.ci
def test_a_cell_holds_the_files_of_a_run_of_its_scenario(tmp_path: Path) -> None:
    sweep = swept(study(tmp_path, seeds=1), tmp_path / "out", traces=True)
    for cell, key, summary in sweep.kept():
        folder = tmp_path / "out" / "cells" / key
        result = simfl.run(cell.scenario, out=tmp_path / "run")
        own = result.summary
        assert json.loads((folder / "about.json").read_text())["versions"] == own["versions"]
        own["versions"] = {}  # the one key that differs: nothing was trained, so that one is empty anyway
        assert summary.dump() == json.loads(json.dumps(own))
        for name in ("breakdown.csv", "resolved.yaml", "trace.jsonl"):
            assert (folder / name).read_bytes() == (tmp_path / "run" / name).read_bytes()
        assert trace_reader.read(folder / "trace.jsonl").keys() == {"fedavg", "lightsecagg"}
        shutil.rmtree(tmp_path / "run")


def test_a_cells_files_tell_nothing_of_machine_or_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another machine, with other versions, at another time; with real training."""
    file = study(
        tmp_path,
        base={**BASE, "payload": "real", "learning": {**BASE["learning"], "way": "loop"}},
        grid={},
        seeds=1,
    )
    swept(file, tmp_path / "one")
    monkeypatch.setattr("platform.node", lambda: "elsewhere")
    monkeypatch.setattr("platform.python_version", lambda: "9.9")
    monkeypatch.setattr("simfl.runs.folder.result.version", lambda name: "9.9")
    monkeypatch.setattr("simfl.learning.sgd.TrainingMethod.__str__", lambda way: "side by side, 9 x the loop")
    swept(file, tmp_path / "two")
    assert files(tmp_path / "one") == files(tmp_path / "two")
    (about,) = (tmp_path / "two").rglob("about.json")
    told = json.loads(about.read_text())
    assert told["machine"] == "elsewhere"
    assert told["training"]["fedavg"] == "side by side, 9 x the loop"


@pytest.mark.ci
def test_stored_cells_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = swept(study(tmp_path), tmp_path / "out")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.json")}
    monkeypatch.setattr(module, "run", lambda scenario: pytest.fail("it was run again"))
    again = swept(study(tmp_path), tmp_path / "out")
    assert again.keys == first.keys
    assert times == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.json")}
    monkeypatch.undo()
    more = swept(study(tmp_path, seeds=3), tmp_path / "out")  # a larger study takes what is there
    assert set(first.keys) < set(more.keys)
    assert all(path.stat().st_mtime_ns == then for path, then in times.items())


def test_cells_that_are_the_same_are_run_once(tmp_path: Path) -> None:
    counted: list[int] = []
    sweep = swept(
        study(tmp_path, grid={"overlap": [True, True]}, seeds=2), tmp_path / "out", watch=counted.append
    )
    assert counted == [1, 2]
    assert len(list(sweep.kept())) == 4


def test_another_version_of_the_code_takes_nothing_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept(study(tmp_path, seeds=1), tmp_path / "out")
    monkeypatch.setattr(module, "code_version", lambda: "newer")
    sweep = Sweep(make_plan(study(tmp_path, seeds=1)), Store(tmp_path / "out"))
    assert len(sweep.missing(print)) == 2


@pytest.mark.ci
def test_traces_that_are_asked_for_later_are_made_later(tmp_path: Path) -> None:
    swept(study(tmp_path, seeds=1), tmp_path / "out")
    before = files(tmp_path / "out")
    sweep = swept(study(tmp_path, seeds=1), tmp_path / "out", traces=True)
    after = files(tmp_path / "out")
    assert {name for name in after if name not in before} == {
        f"cells/{key}/trace.jsonl" for key in sweep.keys
    }
    assert all(after[name] == text for name, text in before.items() if not name.endswith(SUMS))


@pytest.mark.ci
def test_damaged_cells_are_reported_and_run_again(tmp_path: Path) -> None:
    sweep = swept(study(tmp_path), tmp_path / "out")
    whole = files(tmp_path / "out")
    for key, name in zip(sweep.keys[1:], ("summary.json", "breakdown.csv", SUMS), strict=True):
        broken = tmp_path / "out" / "cells" / key / name
        broken.write_bytes(broken.read_bytes()[:-9])
    told: list[str] = []
    assert list(sweep.missing(told.append)) == list(sweep.keys[1:])
    other = "not as it was written: its SHA-256 is not that in SHA256SUMS"
    assert [said.partition("(")[2] for said in told] == [
        f"dropout.rate=0.0, seed=6) is run again: summary.json {other}",
        f"dropout.rate=0.2, seed=5) is run again: breakdown.csv {other}",
        "dropout.rate=0.2, seed=6) is run again: SHA256SUMS not as it was written",
    ]
    swept(study(tmp_path), tmp_path / "out")
    assert files(tmp_path / "out") == whole


def test_workers_that_go_away_leave_the_cells_that_were_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def leaving(*_: Any) -> Iterator[Any]:
        def stopped(*given: Any) -> Any:
            yield from islice(in_line(*given), 3)
            raise RunFailed("the workers stopped")

        yield stopped

    monkeypatch.setattr(module, "workers", leaving)
    with pytest.raises(RunFailed, match="the workers stopped"):
        swept(study(tmp_path), tmp_path / "out")
    assert len(list((tmp_path / "out" / "cells").iterdir())) == 3
