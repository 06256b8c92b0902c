"""Live runs over a buffer: exact whoever is lost, and the same updates as in a simulation."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from simfl.live.buffer_user import LiveBufferUser
from simfl.live.live_protocol import LiveStats, prepared
from simfl.live.run_live import run_live
from simfl.runs.results.metrics import Round
from simfl.runs.simulation import run
from simfl.scenario.load import load
from simfl.trace import rows
from simfl.trace.rows import SERVER
from tests.live.test_run_live import SMALL

BUFFER: dict[str, Any] = {
    "rounds": 6,
    "population.users": 6,
    "buffer": {"K": 2, "staleness_bound": 8, "return_s": 0.3},
    "privacy": {"T": 1, "D": 3, "U": 3},
}


def played(name: str, processes: int | None = 1, **overrides: Any) -> tuple[Any, LiveStats, Any]:
    """Play and simulate a scenario; what was played is exact, and its critical path adds up."""
    given = BUFFER | {"protocols": [name]} | {key.replace("__", "."): v for key, v in overrides.items()}
    result, stats = run_live(prepared(load(SMALL, given)), processes=processes)
    exact = [m.aggregate_exact for m in result.measured[name]]
    assert False not in exact  # None: users who come and go may leave too few to recover, in real time
    assert True in exact
    assert stats[name].silent == ()
    for r in result.rounds[name]:
        assert sum(r.critical.values()) == r.end - r.start
    return result, stats[name], run(SMALL, given)


def missed(of: list[Round]) -> Counter[tuple[int, str]]:
    return sum((Counter(r.missed) for r in of), Counter[tuple[int, str]]())


ADAPTIVE = {
    "learning__server": {"kind": "fedadam"},
    "network__users__jitter_s": {"kind": "uniform", "low": 0.001, "high": 0.01},
}


@pytest.mark.ci
@pytest.mark.parametrize(("name", "more"), [("fedbuff", {}), ("lightsecagg_async", ADAPTIVE)])
def test_a_buffer_is_exact(name: str, more: dict[str, Any]) -> None:
    result, stats, simulated = played(name, **more)
    real, virtual = result.rounds[name], simulated.rounds[name]
    assert len(real) == len(virtual) == 6
    assert [len(r.members) for r in real] == [2] * 6
    assert stats.refused == {}
    assert not [row for row in result.traces[name] if isinstance(row, rows.Step) and row.round >= 6]


LOSSES = [
    {"user": 0, "round": 0, "at": "shares", "when": "before_send"},
    {"user": 1, "round": 0, "at": "shares", "when": "mid_send"},
    {"user": 2, "round": 0, "at": "training", "when": "mid_send"},
    {"user": 3, "round": 0, "at": "upload", "when": "mid_send"},
    {"user": 4, "round": 0, "at": "upload", "when": "after_send"},
    {"user": 5, "round": 0, "at": "upload", "when": "not_counted"},
    {"user": 0, "round": 1, "at": "upload", "when": "delay", "delay_s": 0.1},
]


@pytest.mark.ci
def test_losses_in_cycles_are_those_of_a_simulation() -> None:
    given = {"dropout": {"kind": "script", "losses": LOSSES}, "learning.epochs": 13}
    result, _, simulated = played("lightsecagg_async", **given)
    real, virtual = (r.rounds["lightsecagg_async"] for r in (result, simulated))
    assert missed(real) == missed(virtual)
    assert len(missed(real)) == 6
    trace = result.traces["lightsecagg_async"]
    back = [row for row in trace if isinstance(row, rows.Step) and row.call == "back"]
    assert {row.party for row in back} == {SERVER}
    assert len(back) == 6


@pytest.mark.ci
def test_an_update_that_comes_too_late_is_given_up() -> None:
    """A cycle takes 0.2 s, of 2 s that it may take."""
    late = [{"user": 0, "round": 0, "at": "upload", "when": "delay", "delay_s": 2.5}]
    given = {
        "dropout": {"kind": "script", "losses": late},
        "deadlines.upload": 2,
        "learning.epochs": 13,
        "population.devices.slowdown": 60,
    }
    result, _, simulated = played("fedbuff", rounds=40, **given)
    for trace in (result.traces["fedbuff"], simulated.traces["fedbuff"]):
        assert [row.about for row in trace if isinstance(row, rows.GaveUp)] == ["0.0"]
        ignored = [row.about for row in trace if isinstance(row, rows.Ignored)]
        assert ignored == ["0.0"]


@pytest.mark.ci
def test_users_of_a_buffer_leave_and_come_as_in_a_simulation() -> None:
    days = {"population.availability": {"kind": "sessions", "on_s": 0.5, "off_s": 0.3}}
    result, _, simulated = played("lightsecagg_async", rounds=3, **days)
    at_first = [
        {(row.user, row.online) for row in trace if isinstance(row, rows.Presence) and row.at < 10**8}
        for trace in (result.traces["lightsecagg_async"], simulated.traces["lightsecagg_async"])
    ]
    assert at_first == [{(1, False), (4, False)}] * 2
    members = {user for r in result.rounds["lightsecagg_async"] for user, _, _ in r.members}
    assert members & {1, 4}


MINE = """
from typing import Any
from simfl.protocols.fedbuff import FedBuff

class Mine(FedBuff):
    'A buffer of somebody else.'
    protocol: Any = "module"
    module: str
"""


@pytest.mark.ci
def test_a_buffer_of_a_file_is_played(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    study = prepared(load(SMALL, BUFFER | {"protocols": {"mine": {"module": f"{tmp_path}/mine.py:Mine"}}}))
    result, _ = run_live(study, processes=1)
    assert len(result.rounds["mine"]) == 6
    assert all(m.aggregate_exact for m in result.measured["mine"])


@pytest.mark.ci
def test_a_user_that_counts_wrongly_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    tell = LiveBufferUser._send_taken

    def lies(self: LiveBufferUser) -> None:
        self.received += 10**6 * (self.user == 1 and self.received == 8)
        tell(self)

    monkeypatch.setattr(LiveBufferUser, "_send_taken", lies)
    result, stats = run_live(
        prepared(load(SMALL, BUFFER | {"protocols": ["lightsecagg_async"]})), processes=1
    )
    assert all(m.aggregate_exact for m in result.measured["lightsecagg_async"])
    assert any("1000008 messages taken" in why for why in stats["lightsecagg_async"].refused)
