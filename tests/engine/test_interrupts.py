"""A run that is stopped ends at once and leaves what it had finished, whole."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from simfl.crypto import keys
from simfl.runs import build
from simfl.runs.folder.unfinished import NAME
from simfl.runs.simulation import Progress, simulate
from simfl.trace import reader as trace_reader
from tests.engine.harness import ASYNC, FILES, SIX, SYNC, run

LONG = {"rounds": 400}


@pytest.mark.ci(but=["pooled"])
@pytest.mark.parametrize(
    ("base", "overrides"),
    [
        (SYNC, {**SIX, "protocols": ["lightsecagg"], **LONG}),
        (SYNC, {**SIX, "protocols": ["fedavg"], **LONG, "workers": 1}),
        (SYNC, {**SIX, "protocols": ["secagg"], **LONG, "clock": "measured"}),
        (ASYNC, {**LONG, "workers": 2}),
    ],
    ids=["eager", "pooled", "measured", "asynchronous"],
)
def test_a_cancelled_run_leaves_its_rounds_within_a_second(
    base: dict[str, Any], overrides: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "PENDING_SHARE", 1e-5)
    out = tmp_path / "run"

    async def main() -> tuple[float, int]:
        enough, told = asyncio.Event(), 0

        def watch(progress: Progress) -> None:
            nonlocal told
            told = progress.rounds_done
            if told >= 3:
                enough.set()

        running = asyncio.create_task(simulate(base, overrides, out, watch))
        await asyncio.wait_for(enough.wait(), 60)
        started = time.process_time()  # a busy machine comes back to this process when it can
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return time.process_time() - started, told

    took, told = asyncio.run(main())
    assert took < 1
    assert {path.name for path in out.iterdir()} == FILES | {NAME}
    summary = json.loads((out / "summary.json").read_text())
    assert summary["interrupted"] is True
    (protocol,) = summary["protocols"].values()
    assert [r["index"] for r in protocol["rounds"]] == list(range(told))
    assert all(r["aggregate_exact"] for r in protocol["rounds"])
    assert len((out / "metrics.jsonl").read_text().splitlines()) == told
    assert trace_reader.read(out / "trace.jsonl").keys() == summary["protocols"].keys()


def test_an_uninterrupted_run_is_marked_so() -> None:
    assert run().summary["interrupted"] is False


def test_a_run_stopped_before_its_first_round_leaves_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        running = asyncio.create_task(simulate(SYNC, LONG, tmp_path / "run"))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    # it may have got as far as a round before it looked up; what it leaves is then whole
    if (tmp_path / "run").exists():
        assert {path.name for path in (tmp_path / "run").iterdir()} == FILES | {NAME}


def test_a_run_that_fails_leaves_its_finished_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, original = 0, keys.agree

    def agree(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 2 * 12:  # channels and masks of six users, twice
            raise RuntimeError("boom")
        return original(*arguments)

    monkeypatch.setattr(keys, "agree", agree)
    with pytest.raises(RuntimeError, match="boom"):
        run({**SIX, "protocols": ["fedavg", "secagg"], "rounds": 3}, out=tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["interrupted"] is True
    done = {name: len(protocol["rounds"]) for name, protocol in summary["protocols"].items()}
    assert done == {"fedavg": 3, "secagg": 2}
    assert {path.name for path in tmp_path.iterdir()} == FILES


@pytest.mark.ci
def test_a_coroutine_beside_a_run_stays_live() -> None:
    async def main() -> int:
        running, turns = asyncio.create_task(simulate(SYNC, {**SIX, "rounds": 60})), 0
        while not running.done():
            await asyncio.sleep(0.001)
            turns += 1
        await running
        return turns

    assert asyncio.run(main()) > 8
