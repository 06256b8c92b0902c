"""Links by the kernel: exact, and nothing is left of them, whatever ends the run. As root only."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks import namespaces
from benchmarks.kernel_links import Delay, opened
from benchmarks.namespaces import NAMED, PREFIX, Namespaces
from simfl.errors import BadInput, ScenarioError
from simfl.live.live_protocol import prepared
from simfl.live.run_live import run_live
from simfl.scenario.load import load
from tests.live.test_run_live import SMALL

THREE: dict[str, Any] = {
    **SMALL,
    "population": {"users": 3, "devices": {"slowdown": 20}},
    "privacy": {"T": 1, "D": 1, "U": 2},
}


def there() -> set[str]:
    return {path.name for path in NAMED.glob(f"{PREFIX}*")} if NAMED.is_dir() else set()


def why_not() -> str:
    """Why this machine has no namespaces; empty if it has."""
    try:
        with Namespaces(["probe"]).made():
            return ""
    except (BadInput, OSError) as problem:
        return str(problem)


WHY_NOT = why_not()
as_root = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


@pytest.fixture
def cleaned() -> Iterator[None]:
    yield
    assert not any(name.startswith(f"{PREFIX}{os.getpid()}-") for name in there())  # others may have some


def three(**overrides: Any) -> Any:
    return prepared(load(THREE, overrides))


@pytest.mark.ci
@as_root
@pytest.mark.parametrize("delay", ["user", "wire"])
def test_a_round_over_kernel_links_is_exact(delay: Delay, tmp_path: Path, cleaned: None) -> None:
    losses = [{"user": 1, "round": 1, "at": "upload", "when": "mid_send"}]
    study = three(rounds=2, dropout={"kind": "script", "losses": losses})
    with opened(study, delay) as sockets:
        result, stats = run_live(study, tmp_path, sockets=sockets)
    assert [m.aggregate_exact for m in result.measured["lightsecagg"]] == [True, True]
    first, second = result.rounds["lightsecagg"]
    assert [sorted(user for user, _, _ in r.members) for r in (first, second)] == [[0, 1, 2], [0, 2]]
    for r in (first, second):
        assert sum(r.critical.values()) == r.end - r.start
    assert stats["lightsecagg"].silent == ()
    told = json.loads((tmp_path / "live.json").read_text())
    assert told["processes"] == 3


@pytest.mark.ci
@as_root
def test_the_kernel_has_the_rate_and_the_round_trip(cleaned: None) -> None:
    """A refused connection takes two latencies; the bucket is the scenario's rate with headers."""
    study = three(**{"network.users.latency_s": 0.04, "network.users.uplink_mbps": 2})
    with opened(study, "wire") as sockets, sockets.at_server():
        sockets.enter_user(0)
        began = time.monotonic()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((sockets.address, 1))
        assert 0.08 <= time.monotonic() - began < 10
        name = f"{PREFIX}{os.getpid()}-u0"
        buckets = subprocess.run(["tc", "-n", name, "qdisc", "show"], capture_output=True, text=True).stdout
    assert "rate 2091Kbit" in buckets  # 2000 x 1514 / 1448


PLAYS = """
import sys
from pathlib import Path
from benchmarks.kernel_links import opened
from simfl.live.run_live import run_live
from simfl.live.live_protocol import prepared
from simfl.scenario.load import load
study = prepared(load(Path(sys.argv[1])))
with opened(study, "wire") as sockets:
    run_live(study, sockets=sockets)
"""


@pytest.mark.ci
@as_root
@pytest.mark.parametrize("ends", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_no_namespace(ends: signal.Signals, tmp_path: Path, cleaned: None) -> None:
    scenario = tmp_path / "long.yaml"
    scenario.write_text(yaml.safe_dump({**THREE, "rounds": 1000}))
    with subprocess.Popen([sys.executable, "-c", PLAYS, str(scenario)], stderr=subprocess.PIPE) as run:
        own, until = f"{PREFIX}{run.pid}-", time.monotonic() + 60
        while not _plays(run.pid) and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.5)  # a signal amid a fork would be lost
        assert {f"{own}hub", f"{own}server", f"{own}u2"} <= there()
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
        run.send_signal(ends)
        try:
            run.wait(20)
        finally:
            run.kill()
    until = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in children) and time.monotonic() < until:
        time.sleep(0.1)
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    if ends == signal.SIGKILL:  # the next run removes what nobody could
        with Namespaces(["next"]).made():
            assert not any(name.startswith(own) for name in there())
    assert not any(name.startswith(own) for name in there())


def _plays(pid: int) -> bool:
    """True once a run has its users' processes beside its wire's."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return len(children) > 3


@pytest.mark.ci
@as_root
def test_a_failure_leaves_no_namespace(cleaned: None) -> None:
    seen = set[str]()

    def fails() -> None:
        with opened(three(), "wire"):
            seen.update(there())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert f"{PREFIX}{os.getpid()}-u2" in seen


REFUSED = {
    "network.users.varies": ({"markov": [{"factor": 1.0, "dwell_s": 1.0}]}, "wire"),
    "network.server.varies": ({"markov": [{"factor": 1.0, "dwell_s": 1.0}]}, "wire"),
    "network.users.jitter_s": ({"kind": "uniform", "low": 0.001, "high": 0.01}, "wire"),
    "network.outages": ([{"of": "all", "factor": 0.5, "from_s": 1.0, "to_s": 2.0}], "user"),
}


@pytest.mark.parametrize("key", REFUSED)
def test_links_that_vary_are_refused_by_key(key: str) -> None:
    value, delay = REFUSED[key]
    with pytest.raises(ScenarioError) as refused, opened(three(**{key: value}), delay):  # type: ignore[arg-type]
        pass
    assert [problem.path for problem in refused.value.problems] == [key]


@pytest.mark.parametrize(
    ("lacking", "said"),
    [
        ("tc", "links by the kernel: tc of iproute2 are needed, and not found"),
        ("rights", "links by the kernel: only root may make network namespaces"),
    ],
)
def test_a_missing_tool_is_named_in_one_message(
    lacking: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespaces.shutil, "which", lambda tool: None if tool == lacking else tool)
    monkeypatch.setattr(namespaces.os, "geteuid", lambda: int(lacking == "rights"))
    with pytest.raises(BadInput, match=f"^{said}$"), opened(three(), "wire"):
        pass
