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

import pytest

from simfl.cli import main
from simfl.config.digests import SUMS, manifest
from simfl.engine.clocks import Modelled
from simfl.errors import BadInput, RunFailed
from simfl.runs.folder.unfinished import NAME
from simfl.runs.simulation import Progress
from tests.engine.harness import ASYNC, FILES, ROOT, SESSIONS, SIX, SYNC, run
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
    their rows are not those that it kept."""
    base, overrides = CASES[case]
    with monkeypatch.context() as faster:
        work_ns = Modelled.work_ns
        faster.setattr(Modelled, "work_ns", lambda *how: work_ns(*how) // 2)
        assert interrupted(base, overrides, tmp_path, resume=False, more=1)
    with pytest.raises(RunFailed, match=r"the resumed run differs from the interrupted one: \w+, row \d+"):
        run(overrides, base, out=tmp_path, resume=True)


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


# --- what cannot be resumed ---------------------------------------------------------------------
LONG = {**SIX, "payload": "shadow", "rounds": 8}


@pytest.fixture
def half(tmp_path: Path) -> Path:
    assert interrupted(SYNC, LONG, tmp_path, resume=False, more=2)
    return tmp_path


def test_another_scenario_is_refused_by_its_keys(half: Path) -> None:
    with pytest.raises(BadInput, match=r"another run: seed: 5 then, 6 now; rounds: 8 then, 60 now"):
        run({**LONG, "rounds": 60, "seed": 6}, out=half, resume=True)


def test_other_code_is_refused(half: Path) -> None:
    about = json.loads((half / NAME / "run.json").read_text())
    (half / NAME / "run.json").write_text(json.dumps({**about, "code": "0.0.1+abc"}))
    (half / NAME / SUMS).write_text(manifest(half / NAME, ("run.json", "scenario.yaml")))
    with pytest.raises(BadInput, match=r"code: 0.0.1\+abc then, "):
        run(LONG, out=half, resume=True)


def test_a_finished_run_has_nothing_to_resume(tmp_path: Path) -> None:
    run(out=tmp_path)
    with pytest.raises(BadInput, match="no unfinished run is there"):
        run(out=tmp_path, resume=True)


def test_secrets_of_the_system_cannot_be_made_again(tmp_path: Path) -> None:
    over = {**SIX, "protocols": ["secagg"], "rounds": 8, "entropy": "os"}
    assert interrupted(SYNC, over, tmp_path, resume=False, more=2)
    with pytest.raises(BadInput, match="entropy: os"):
        run(over, out=tmp_path, resume=True)


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("journal.jsonl", "[]\n", "journal.jsonl:1: not as it was written"),
        ("trace.jsonl", "", "trace.jsonl: not as it was written: the SHA-256 of lines 1 to 0 is not"),
        ("run.json", "{", "run.json: not as it was written"),
    ],
)
def test_damaged_files_are_told(half: Path, file: str, text: str, says: str) -> None:
    (half / NAME / file).write_text(text)
    with pytest.raises(BadInput, match=says):
        run(LONG, out=half, resume=True)


@pytest.mark.ci
def test_half_a_line_is_cut_off(half: Path) -> None:
    for file in ("journal.jsonl", "trace.jsonl"):
        with (half / NAME / file).open("ab") as out:
            out.write(b'{"protocol": "fed')
    result = run(LONG, out=half, resume=True)
    assert {path.name for path in half.iterdir()} == FILES
    assert not result.interrupted


# --- killed for real ----------------------------------------------------------------------------
def killed(tmp_path: Path, kills: int, number: int, scenario: list[str]) -> Iterator[bytes]:
    """SIGKILL so many times, each time going on to the end; yields what was saved of the trace at each kill.

    The moments: a random one while it starts, or soon after a few more rounds were saved.
    """
    command = [sys.executable, str(ROOT / "run.py"), "--no-progress", "--save-every", "0"]
    out, rng, times = tmp_path / "broken", random.Random(number), 0
    journal = out / NAME / "journal.jsonl"
    while True:
        arguments = ["--resume", str(out)] if journal.exists() else [*scenario, "--out", str(out)]
        running = subprocess.Popen([*command, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if times < kills:
            more, saved = rng.randint(0, 3), lines(journal)
            while more and lines(journal) < saved + more and running.poll() is None:
                time.sleep(0.002)
            time.sleep(rng.uniform(0.0, 0.03 if more else 1.5))
            running.send_signal(signal.SIGKILL)
        _, errors = running.communicate(timeout=300)
        assert running.returncode in (0, -signal.SIGKILL), errors
        if running.returncode == 0:
            break
        times += 1
        whole = journal.read_bytes().rpartition(b"\n")[0].splitlines() if journal.exists() else []
        yield (out / NAME / "trace.jsonl").read_bytes()[: json.loads(whole[-1])["size"]] if whole else b""
    assert times == kills


def killed_and_resumed(tmp_path: Path, kills: int, number: int, scenario: list[str]) -> None:
    """The same bytes as of a run that nothing ended."""
    with pytest.raises(SystemExit) as left:
        main(["run", "--no-progress", *scenario, "--out", str(tmp_path / "whole")])
    assert left.value.code == 0
    assert len(list(killed(tmp_path, kills, number, scenario))) == kills
    assert content(tmp_path / "broken") == content(tmp_path / "whole")


def lines(journal: Path) -> int:
    """The number of rounds that are saved."""
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


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
