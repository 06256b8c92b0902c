"""Live runs over a buffer: exact whoever is lost, and the same updates as in a simulation."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from simfl.live.play import play
from simfl.live.sides import Figures, prepared
from simfl.results import trace as rows
from simfl.results.metrics import Round
from simfl.results.trace import SERVER
from simfl.scenario.load import load
from simfl.simulation import run
from tests.live.test_play import SMALL

BUFFER: dict[str, Any] = {
    "rounds": 6,
    "population.users": 6,
    "buffer": {"K": 2, "staleness_bound": 8, "return_s": 0.3},
    "privacy": {"T": 1, "D": 3, "U": 3},
}


def played(name: str, processes: int | None = 1, **overrides: Any) -> tuple[Any, Figures, Any]:
    """Play and simulate a scenario; what was played is exact, and its critical path adds up."""
    given = BUFFER | {"protocols": [name]} | {key.replace("__", "."): v for key, v in overrides.items()}
    result, figures = play(prepared(load(SMALL, given)), processes=processes)
    assert all(m.aggregate_exact for m in result.measured[name])
    assert figures[name].silent == ()
    for r in result.rounds[name]:
        assert sum(r.critical.values()) == r.end - r.start
    return result, figures[name], run(SMALL, given)


def missed(of: list[Round]) -> Counter[tuple[int, str]]:
    return sum((Counter(r.missed) for r in of), Counter[tuple[int, str]]())


@pytest.mark.parametrize("name", ["fedbuff", "lightsecagg_async"])
def test_a_buffer_is_exact(name: str) -> None:
    result, figures, simulated = played(name)
    real, virtual = result.rounds[name], simulated.rounds[name]
    assert len(real) == len(virtual) == 6
    assert [len(r.members) for r in real] == [2] * 6
    assert figures.refused == {}
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


def test_losses_in_cycles_are_those_of_a_simulation() -> None:
    given = {"dropout": {"kind": "script", "losses": LOSSES}}
    result, _, simulated = played("lightsecagg_async", **given)
    real, virtual = (r.rounds["lightsecagg_async"] for r in (result, simulated))
    assert missed(real) == missed(virtual)
    assert len(missed(real)) == 6
    trace = result.traces["lightsecagg_async"]
    back = [row for row in trace if isinstance(row, rows.Step) and row.call == "back"]
    assert {row.party for row in back} == {SERVER}
    assert len(back) == 6
