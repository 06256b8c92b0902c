"""Users that are online as often as their samples make likely."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from simfl.errors import ScenarioError
from simfl.learning import partition
from simfl.random_streams import Streams
from simfl.runs.build import build
from simfl.scenario.load import load
from simfl.trace.rows import Begin
from simfl.world.availability import ByData, DataShare, shares
from tests.engine.harness import SIX, SYNC, of, run
from tests.world.test_availability import NS, surely

# --- by what users hold -------------------------------------------------------------------------
HELD = np.array([[4, 0, 0, 0], [0, 2, 0, 0], [0, 1, 1, 6], [0, 0, 0, 1], [0, 0, 0, 0]])


@pytest.mark.ci(but=["labels"])
@pytest.mark.parametrize(
    ("by", "low", "high", "power", "p"),
    [
        ("more_data", 0, 1, 1, [4 / 8, 2 / 8, 1, 1 / 8, 0]),
        ("more_data", 0, 1, 0.5, [(4 / 8) ** 0.5, (2 / 8) ** 0.5, 1, (1 / 8) ** 0.5, 0]),
        ("less_data", 0, 1, 2, [1 / 4**2, 1 / 2**2, 1 / 8**2, 1, 0]),
        ("least_label", 0.9, 1, 1, [0.9, 0.1 / 3 + 0.9, 0.1 / 3 + 0.9, 1, 0.9]),
        ("labels", 0.8, 1, 1, [0.2 / 4 + 0.8, 0.2 / 4 + 0.8, 0.2 * 3 / 4 + 0.8, 0.2 / 4 + 0.8, 0.8]),
    ],
)
def test_a_users_samples_decide_how_often_it_is_online(
    by: Any, low: float, high: float, power: float, p: list[float]
) -> None:
    spec = ByData(by=by, low=low, high=high, power=float(power))
    drawn = spec.times_of(5, Streams(1), lambda: HELD).by_round
    assert drawn is not None
    count = np.sum([drawn(index) for index in range(4000)], axis=0)
    assert surely(count, 4000, np.array(p))
    slots = ByData(by=by, low=low, high=high, power=float(power), slot_s=1.0)
    everyone = slots.times_of(5, Streams(1), lambda: HELD)
    count = np.array([sum(everyone.at(user, t * NS)[0] for t in range(2000)) for user in range(5)])
    assert surely(count, 2000, np.array(p))
    assert everyone.ever_online is not None
    assert everyone.ever_online.tolist() == [x > 0 for x in p]


def test_users_without_samples_have_no_share() -> None:
    for by in get_args(DataShare):
        assert shares(by, np.zeros((3, 2), np.int64)).tolist() == [0, 0, 0]
        assert shares(by, np.array([[5]])).tolist() == [0.0 if by == "least_label" else 1.0]


HOLDERS = """
from simfl.world.availability import Availability, OnlineTimes


class Holders(Availability):
    least: int = 0

    def times(self, users, streams):
        return OnlineTimes()

    def times_of(self, users, streams, holdings):
        return OnlineTimes(ever_online=holdings().sum(axis=1) >= self.least)
"""


def test_a_user_defined_model_may_count_samples(tmp_path: Path) -> None:
    (tmp_path / "holders.py").write_text(HOLDERS)
    own = {"module": f"{tmp_path}/holders.py:Holders", "least": 500}
    study = build(load(SYNC, {"population.availability": own, "learning.partition": {"dirichlet": 0.3}}))
    held = study.partitions["fedavg"].sum(axis=1)
    assert study.people.online.ever_online is not None
    assert study.people.online.ever_online.tolist() == (held >= 500).tolist()
    assert len({*study.people.online.ever_online.tolist()}) == 2


COMING = {"kind": "by_data", "by": "labels", "low": 0.0, "high": 1.0}


def test_users_with_more_labels_take_part_more_often() -> None:
    """Eight users of a Dirichlet partition in 40 rounds: each is in as many as its labels make likely."""
    result = run(
        {
            **SIX, "protocols": ["fedavg"], "rounds": 40, "payload": "shadow",
            "population.availability": COMING, "learning.partition": {"dirichlet": 0.1},
        }
    )  # fmt: skip
    scenario = result.scenario
    held = build(scenario).partitions["fedavg"]
    (trace,) = result.traces.values()
    count = np.bincount([user for begin in of(trace, Begin) for user in begin.users], minlength=6)
    p = (held > 0).sum(axis=1) / held.shape[1]
    assert len(set(p)) > 2
    assert surely(count, 40, p)


def test_two_partitions_are_refused_if_samples_decide() -> None:
    iid = {"protocol": "fedavg", "partition": "iid"}
    entries = {"a": iid, "b": {"protocol": "fedavg", "partition": {"dirichlet": 1.0}}}
    with pytest.raises(ScenarioError, match=r"population\.availability: depends on what users hold, so all"):
        build(load({**SYNC, "protocols": entries}, {"population.availability": COMING}))
    build(load({**SYNC, "protocols": {"a": iid, "b": iid}}, {"population.availability": COMING}))


@pytest.mark.parametrize("kind", ["always", {"bernoulli": 0.5}, COMING])
def test_holdings_are_counted_only_where_they_are_asked_for(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []
    monkeypatch.setattr(partition, "label_counts", lambda *given: counted.append(given) or HELD[:3])
    build(load(SYNC, {"population.availability": kind}))
    assert len(counted) == (kind is COMING)
