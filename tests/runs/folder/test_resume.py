"""A run that was interrupted goes on, and what it leaves in the end is what an uninterrupted one leaves."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simfl.cli import main
from simfl.config.digests import Damaged
from simfl.engine.clocks import ModelledClock
from simfl.errors import BadInput, RunFailed
from simfl.runs.folder.saved_rounds import BASE, NAME, Entry, Unfinished
from simfl.runs.folder.unfinished import claim_folder, open_saved, recover
from simfl.runs.simulation import Progress
from simfl.scenario.load import load
from tests.engine.harness import ASYNC, ROOT, SESSIONS, SIX, SYNC, run
from tests.engine.test_battery import SMALL, battery

LOSSES = {"dropout": {"rate": 0.2}}
SURPLUS = {
    "selection": {"kind": "random", "users": 4, "over": 1.5},
    "population.devices.slowdown": {"kind": "lognormal", "median": 20.0, "sigma": 1.0},
}
WIDE = {**SIX, "privacy": {"T": 2, "D": 0, "U": 6}, "memory_limit_gb": 0.006}

OVERNIGHT = {
    "capacity_j": 0.5, "level": {"kind": "uniform", "low": 0.1, "high": 0.5}, "comes_back_at": 1.0,
    "night_s": 0.1, "day_s": 0.6, "use_w": 0.3,
}  # fmt: skip
GENERATORS = {
    "population.availability": {
        "module": f"{ROOT}/examples/charging.py:Charging", "plugged_s": 0.3, "day_s": 0.4, "sigma_s": 0.05,
    },
    "population.energy": {
        "cpu_w": 2.0, "battery": {"module": f"{ROOT}/examples/overnight.py:Overnight", **OVERNIGHT},
    },
    "network.users.varies": {
        "module": f"{ROOT}/examples/tunnels.py:Tunnels", "open_s": 0.1, "tunnel_s": 0.03,
    },
}  # fmt: skip

CASES: dict[str, tuple[Mapping[str, Any], dict[str, Any]]] = {
    "rounds": (SYNC, {**SIX, **LOSSES, "protocols": ["secagg", "lightsecagg"], "rounds": 3}),
    "rounds in two threads": (
        SYNC,
        {**SIX, **LOSSES, "protocols": ["lightsecagg"], "rounds": 4, "workers": 2},
    ),
    "fedadam": (SYNC, {**SIX, "learning.server": "fedadam", "protocols": ["secagg"], "rounds": 4}),
    "updates": (SYNC, {**SIX, "record_updates": True, "protocols": ["fedavg"], "rounds": 4}),
    "late": (SYNC, {**SIX, "deadlines.upload": 0.9, "protocols": ["fedavg"], "rounds": 4}),
    "surplus": (SYNC, {**SIX, **SURPLUS, "protocols": ["fedavg", "lightsecagg"], "rounds": 3}),
    "a loop": (SYNC, {**SIX, "learning.way": "loop", "protocols": ["lightsecagg"], "rounds": 3}),
    "buffers": (ASYNC, {**LOSSES, "rounds": 4}),
    "buffers in two threads": (ASYNC, {**LOSSES, "rounds": 4, "workers": 2}),
    "buffers of users who come and go": (ASYNC, {"population.availability": SESSIONS, "rounds": 4}),
    "fedyogi, buffered": (ASYNC, {"learning.server": "fedyogi", "protocols": ["fedbuff"], "rounds": 4}),
    "batteries": (ASYNC, {"population.energy": battery(**SMALL), "rounds": 4}),
    "generators": (ASYNC, {**GENERATORS, "rounds": 5}),
    "earlier models": (ASYNC, {"buffer.staleness": {"uniform": [0, 4]}, "buffer.every_s": 0.2, "rounds": 6}),
    "shadow": (ASYNC, {**LOSSES, "payload": "shadow", "rounds": 4}),
}


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".npz"}


def interrupted(
    base: Mapping[str, Any], overrides: dict[str, Any], out: Path, resume: bool, more: int
) -> bool:
    """Run until `more` rounds are finished, and interrupt it; False if it came to its end first."""
    seen = set[tuple[str, int]]()

    def watch(progress: Progress) -> None:
        if progress.rounds_done:
            seen.add((progress.protocol, progress.rounds_done))
        if len(seen) > more:
            raise KeyboardInterrupt

    try:
        run(overrides, base, out=out, watch=watch, resume=resume, save_every_s=0)
    except KeyboardInterrupt:
        return True
    return False


LATER = {"rounds in two threads", "fedyogi, buffered"}


@pytest.mark.ci(but=["[buffers]", "shadow"])
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow) if case in LATER else case for case in CASES]
)
def test_a_resumed_run_leaves_the_same_bytes(case: str, tmp_path: Path) -> None:
    base, overrides = CASES[case]
    run(overrides, base, out=tmp_path / "whole")
    out, times = tmp_path / "broken", 0
    while interrupted(base, overrides, out, resume=times > 0, more=1 + times % 2):
        times += 1
        assert json.loads((out / "summary.json").read_text())["interrupted"]
        assert times < 30
    assert times >= 1
    assert content(out) == content(tmp_path / "whole")
    names = [path.name for path in (tmp_path / "whole").iterdir()]
    assert sorted(path.name for path in out.iterdir()) == sorted(names)


@pytest.mark.ci(but=["rounds"])
@pytest.mark.parametrize("case", ["rounds", "buffers"])
def test_a_resumed_timeline_that_differs_is_refused(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose devices were twice as fast when it began: its finished rounds are gone over once more, and
    their rows are not those that it kept. These stay, for a run that is as fast."""
    base, overrides = CASES[case]
    with monkeypatch.context() as faster:
        work_ns = ModelledClock.work_ns
        faster.setattr(ModelledClock, "work_ns", lambda *how: work_ns(*how) // 2)
        assert interrupted(base, overrides, tmp_path, resume=False, more=1)
    for _ in range(2):
        message = r"the resumed run differs from the interrupted one: \w+, row \d+; its saved rounds stay"
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        with pytest.raises(RunFailed, match=message):
            run(overrides, base, out=tmp_path, resume=True)
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    with monkeypatch.context() as faster:
        faster.setattr(ModelledClock, "work_ns", lambda *how: work_ns(*how) // 2)
        assert not run(overrides, base, out=tmp_path, resume=True).interrupted


@pytest.mark.ci
def test_measured_rounds_stay_as_they_were(tmp_path: Path) -> None:
    overrides = {**SIX, **LOSSES, "clock": "measured", "protocols": ["lightsecagg"], "rounds": 4}
    keys = ("index", "start_s", "end_s", "span_s", "critical_s", "accuracy", "loss", "aggregate_exact")
    before: list[Any] = []
    times = 0
    while interrupted(SYNC, overrides, tmp_path, resume=times > 0, more=1):
        summary = json.loads((tmp_path / "summary.json").read_text())
        rounds = [[r[key] for key in keys] for r in summary["protocols"]["lightsecagg"]["rounds"]]
        assert rounds[: len(before)] == before
        before, times = rounds, times + 1
    assert times >= 1
    summary = json.loads((tmp_path / "summary.json").read_text())
    rounds = [[r[key] for key in keys] for r in summary["protocols"]["lightsecagg"]["rounds"]]
    assert rounds[: len(before)] == before
    assert len(rounds) == 4
    assert all(r[-1] for r in rounds)


@pytest.mark.ci
def test_shares_that_stream_can_be_resumed(tmp_path: Path) -> None:
    overrides = {**SIX, "population.users": 8, "privacy": {"T": 1, "D": 0, "U": 8}, "workers": 1, "rounds": 3}
    overrides |= {"learning.model": "cnn", "protocols": ["lightsecagg"], "memory_limit_gb": 0.015}
    whole = run(overrides, out=tmp_path / "whole")
    assert whole.summary["protocols"]["lightsecagg"]["final_accuracy"] is not None
    out, times = tmp_path / "broken", 0
    while interrupted(SYNC, overrides, out, resume=times > 0, more=1):
        times += 1
    assert times >= 1
    assert content(out)["trace.jsonl"] == content(tmp_path / "whole")["trace.jsonl"]


@pytest.mark.ci
@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize("noted", [False, True])
def test_an_interrupt_at_the_end_of_a_saving(
    noted: bool, nth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transaction is over; the run has noted that, or not, when it saves what it has a last time."""
    over = {**SIX, **LOSSES, "learning.server": "fedadam", "record_updates": True, "rounds": 5}
    run(over, out=tmp_path / "whole")
    save, calls = Unfinished.save, list[int]()

    def late(self: Unfinished, *arguments: Any) -> None:
        calls.append(1)
        if noted or len(calls) != nth:
            save(self, *arguments)
        else:
            before = self.entries, self._chains, self._last
            save(self, *arguments)
            self.entries, self._chains, self._last = before
        if len(calls) == nth:
            raise KeyboardInterrupt

    monkeypatch.setattr(Unfinished, "save", late)
    with pytest.raises(KeyboardInterrupt):
        run(over, out=tmp_path / "broken", save_every_s=0)
    assert len(calls) == nth + 1
    run(over, out=tmp_path / "broken", resume=True)
    assert content(tmp_path / "broken") == content(tmp_path / "whole")
    arrays = [np.load(tmp_path / name / "updates-secagg.npz") for name in ("whole", "broken")]
    assert all((arrays[0][key] == arrays[1][key]).all() for key in arrays[0])


# --- what cannot be resumed ---------------------------------------------------------------------
LONG = {**SIX, "payload": "shadow", "rounds": 8}


@pytest.fixture
def half(tmp_path: Path) -> Path:
    assert interrupted(SYNC, LONG, tmp_path, resume=False, more=2)
    return tmp_path


def test_another_scenario_is_refused_by_its_keys(half: Path) -> None:
    with pytest.raises(BadInput, match=r"another run: seed: 5 then, 6 now; rounds: 8 then, 60 now"):
        run({**LONG, "rounds": 60, "seed": 6}, out=half, resume=True)


def test_other_code_is_refused(half: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with claim_folder(half / "other") as own, monkeypatch.context() as other:
        other.setattr("simfl.runs.folder.saved_rounds.code_version", lambda: "0.0.1+abc")
        own.begin(load(SYNC, LONG))
        own.save(Entry(protocol="fedavg"), {})
    with pytest.raises(BadInput, match=r"code: 0.0.1\+abc then, "):
        run(LONG, out=half / "other", resume=True)


def test_a_finished_run_has_nothing_to_resume(tmp_path: Path) -> None:
    run(out=tmp_path)
    with pytest.raises(BadInput, match="holds no unfinished run"):
        run(out=tmp_path, resume=True)


def test_secrets_of_the_system_cannot_be_made_again(tmp_path: Path) -> None:
    over = {**SIX, "protocols": ["secagg"], "rounds": 8, "entropy": "os"}
    assert interrupted(SYNC, over, tmp_path, resume=False, more=2)
    with pytest.raises(BadInput, match="entropy: os"):
        run(over, out=tmp_path, resume=True)


def test_a_killed_run_keeps_its_assumptions(half: Path) -> None:
    """The files are written again from what was saved alone."""
    summary = json.loads((half / "summary.json").read_text())
    assert summary["assumed"]["d"] > 0
    (half / "summary.json").unlink()
    recover(half)
    assert json.loads((half / "summary.json").read_text()) == summary


# --- killed for real ----------------------------------------------------------------------------
def killed(tmp_path: Path, kills: int, number: int, scenario: list[str]) -> Iterator[bytes]:
    """SIGKILL a run this number of times, and resume it each time; yields the saved trace at each kill.

    The moments: a random one while it starts, or soon after a few more rounds were saved.
    """
    command = [sys.executable, str(ROOT / "run.py"), "--no-progress", "--save-every", "0"]
    out, rng, times = tmp_path / "broken", random.Random(number), 0
    file, before = out / NAME / BASE, b""
    while True:
        arguments = ["--resume", str(out)] if before else [*scenario, "--out", str(out)]
        running = subprocess.Popen([*command, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if times < kills:
            more, seen = rng.randint(0, 3), {modified(file)}
            while len(seen) <= more and running.poll() is None:
                seen.add(modified(file))
                time.sleep(0.002)
            time.sleep(rng.uniform(0.0, 0.03 if more else 1.5))
            running.send_signal(signal.SIGKILL)
        _, errors = running.communicate(timeout=300)
        assert running.returncode in (0, -signal.SIGKILL), errors
        if running.returncode == 0:
            break
        times += 1
        before = saved(out)
        yield before
    assert times == kills


def saved(out: Path) -> bytes:
    """The trace of the rounds that are saved; empty if the first saving was killed."""
    try:
        with open_saved(out) as own:
            return b"".join(own.trace())
    except Damaged:
        raise
    except BadInput:
        return b""


def modified(file: Path) -> int:
    """The time of the last saving, 0 before the first."""
    try:
        return file.stat().st_mtime_ns if file.stat().st_size else 0
    except FileNotFoundError:
        return 0


def killed_and_resumed(tmp_path: Path, kills: int, number: int, scenario: list[str]) -> None:
    """The same bytes as of a run that nothing ended."""
    with pytest.raises(SystemExit) as left:
        main(["run", "--no-progress", *scenario, "--out", str(tmp_path / "whole")])
    assert left.value.code == 0
    assert len(list(killed(tmp_path, kills, number, scenario))) == kills
    assert content(tmp_path / "broken") == content(tmp_path / "whole")


TUTORIAL = [str(ROOT / "scenarios" / "tutorial.yaml"), "--set", "rounds=12", "--set", "dropout={rate: 0.2}"]


@pytest.mark.ci
@pytest.mark.parametrize("kills", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_killed_run_leaves_the_same_bytes(kills: int, tmp_path: Path) -> None:
    content = ["rounds=40", "--set", "payload=shadow"] if kills == 1 else ["rounds=12"]
    killed_and_resumed(tmp_path, kills, 1, [*TUTORIAL, "--protocols", "lightsecagg", "--set", *content])


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--workers", "2"], ["--set", "learning.server=fedadam"]])
def test_rounds_killed_ten_times(tmp_path: Path, more: list[str]) -> None:
    killed_and_resumed(tmp_path, 10, 2, [*TUTORIAL, "--set", "rounds=60", *more])


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [[], ["--workers", "2"], ["--set", "dropout={rate: 0.2}", "--set", "buffer.return_s=1"]]
)
def test_buffers_killed_ten_times(tmp_path: Path, more: list[str]) -> None:
    scenario = str(ROOT / "scenarios" / "async_buffer.yaml")
    smaller = ["--clock", "modelled", "--set", "population.users=40", "--set", "buffer.concurrency=20"]
    smaller += ["--set", "privacy={T: 20, D: 12, U: 28}", "--set", "rounds=20"]
    killed_and_resumed(tmp_path, 10, 3, [scenario, *smaller, *more])


@pytest.mark.slow
def test_measured_rounds_killed_ten_times(tmp_path: Path) -> None:
    """What was saved at a kill is what the trace begins with ever after."""
    scenario = [*TUTORIAL, "--set", "rounds=60", "--clock", "measured", "--protocols", "lightsecagg"]
    saved = [part for part in killed(tmp_path, 10, 4, scenario) if part]
    trace = content(tmp_path / "broken")["trace.jsonl"]
    assert len({len(part) for part in saved}) > 3
    assert all(trace.startswith(part) for part in saved)
