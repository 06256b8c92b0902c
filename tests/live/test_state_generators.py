"""A live run follows models by a generator as a simulation does. Only lower bounds of times are asserted."""

from __future__ import annotations

from pathlib import Path

import pytest

from simfl.errors import ScenarioError
from simfl.live.live_protocol import prepared
from simfl.runs.simulation import run
from simfl.scenario.load import load
from simfl.trace import rows
from simfl.trace.rows import SERVER
from tests.live.test_run_live import SMALL, played

CODE = """
import math
from simfl.world.availability import UserStates
from simfl.world.link_models import LinkStates


class Away(UserStates):
    users: tuple[int, ...]

    def states(self, user, rng):
        yield math.inf, user not in self.users


class Tunnel(LinkStates):
    user: int
    out_s: float

    def states(self, user, rng):
        if user == self.user:
            yield self.out_s, 0, 0
        yield math.inf, 1, 1


class Wrong(UserStates):
    def states(self, user, rng):
        yield -1.0, True
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(CODE)
    return path


@pytest.mark.ci
def test_generators_hold_in_a_live_run(file: Path) -> None:
    """User 3 is never online; nothing reaches or leaves user 1 within the first 0.4 s."""
    out_ns = 4 * 10**8
    given = {
        "population.availability": {"module": f"{file}:Away", "users": [3]},
        "network.users.varies": {"module": f"{file}:Tunnel", "user": 1, "out_s": out_ns / 1e9},
    }
    simulated, (result, _) = run(SMALL, given), played(**given)
    for each in (simulated, result):
        (r,) = each.rounds["lightsecagg"]
        assert sorted(user for user, _, _ in r.members) == [0, 1, 2]
        first = _first_arrivals(each.traces["lightsecagg"])
        assert 3 not in first
        assert first[1] > out_ns
    assert _first_arrivals(simulated.traces["lightsecagg"])[0] < out_ns


def _first_arrivals(trace: rows.Trace) -> dict[int, int]:
    """Of each user with messages, the time (ns) at which the first one arrived, of either direction."""
    first: dict[int, int] = {}
    for row in trace:
        if isinstance(row, rows.Sent) and row.arrived is not None:
            user = row.to if row.sender == SERVER else row.sender
            first[user] = min(row.arrived, first.get(user, row.arrived))
    return first


def test_a_wrong_generator_is_refused_before_a_live_run(file: Path) -> None:
    with pytest.raises(ScenarioError, match=r"population\.availability: .*own\.py:\d+: availability Wrong"):
        prepared(load(SMALL, {"population.availability": {"module": f"{file}:Wrong"}}))
