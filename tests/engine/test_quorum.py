"""A quorum closes a stage a grace after enough have answered, and its deadline still holds."""

from __future__ import annotations

from typing import Any

import pytest

from simfl.errors import ScenarioError
from simfl.scenario.load import load
from simfl.trace.rows import End, GaveUp, Step, TimerSet
from tests.engine.harness import ASYNC, run, script

LATE = script((0, 0, "upload", "delay"), (1, 0, "upload", "delay"), delay_s=0.5)


def quorum(fraction: float, grace_s: float, after_s: float = 3.0) -> dict[str, Any]:
    return {"kind": "quorum", "fraction": fraction, "grace_s": grace_s, "after_s": after_s}


def of(trace: Any, row_of: type[Any], /, **wanted: Any) -> list[Any]:
    rows = [row for row in trace if isinstance(row, row_of)]
    return [row for row in rows if all(getattr(row, k) == v for k, v in wanted.items())]


def world(**changes: Any) -> dict[str, Any]:
    return {"population.users": 5, "privacy": {"T": 1, "D": 2, "U": 3}, "dropout": LATE, **changes}


@pytest.mark.parametrize("name", ["fedavg", "secagg", "lightsecagg"])
def test_the_server_continues_a_grace_after_its_quorum(name: str) -> None:
    result = run(world(protocols=[name], **{"deadlines.upload": quorum(0.6, 0.2)}))
    trace = result.traces[name]
    (grace,) = of(trace, TimerSet, name="upload grace")
    taken = [row for row in of(trace, Step, call="receive", what="upload") if row.end <= grace.at]
    assert len(taken) == 3
    assert trace[grace.cause] is taken[-1]
    assert grace.at == taken[-1].end
    assert grace.fires == grace.at + 200_000_000
    (gave_up,) = of(trace, GaveUp, phase="upload")
    assert gave_up.users == (0, 1)
    assert grace.fires <= gave_up.at < grace.fires + 10_000_000
    (entry,) = result.summary["protocols"][name]["rounds"]
    assert (entry["status"], entry["survivors"], entry["aggregate_exact"]) == ("completed", 3, True)


def test_uploads_within_the_grace_are_counted() -> None:
    changes = world(protocols=["secagg"], **{"deadlines.upload": quorum(0.6, 0.9)})
    (entry,) = run(changes).summary["protocols"]["secagg"]["rounds"]
    assert entry["survivors"] == 5


def test_a_fraction_below_the_protocols_minimum_waits_for_it() -> None:
    lost = script(*((u, 0, "upload", "before_send") for u in range(3)))
    changes = world(protocols=["lightsecagg"], dropout=lost, **{"deadlines.upload": quorum(0.0, 0.1)})
    result = run(changes)
    assert not of(result.traces["lightsecagg"], TimerSet, name="upload grace")
    (entry,) = result.summary["protocols"]["lightsecagg"]["rounds"]
    assert entry["reason"] == "upload: 2 users answered, 3 needed"


def test_the_deadline_holds_where_the_grace_is_longer() -> None:
    changes = world(protocols=["fedavg"], **{"deadlines.upload": quorum(0.6, 9.0, after_s=0.3)})
    trace = run(changes).traces["fedavg"]
    (end,) = of(trace, End)
    (deadline,) = of(trace, TimerSet, name="upload")
    assert deadline.fires <= end.at < deadline.fires + 10_000_000


@pytest.mark.parametrize(("kind", "recovery"), [("quorum", quorum(0.5, 1.0)), ("all", {"all": 1.0})])
def test_a_buffer_takes_fixed_deadlines_only(kind: str, recovery: dict[str, Any]) -> None:
    with pytest.raises(ScenarioError, match=rf"deadlines.recovery: must be fixed in .* run, not {kind}"):
        load({**ASYNC, "deadlines": {**ASYNC["deadlines"], "recovery": recovery}})
