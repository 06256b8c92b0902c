"""What would change an answer: another protocol is the fastest beyond the factor, and not before it."""

from __future__ import annotations

import pytest

from simfl.studies.plan.search import Answer, plan
from simfl.studies.plan.sensitivity import (
    COLLUDERS,
    FURTHEST,
    LINKS,
    LOSSES,
    Trial,
    changed_fleet,
    crossovers,
)
from tests.studies.plan.small import small

SLOW_MASKS = {
    "profile": "lightsecagg_table4",
    "population__devices__slowdown": 1,
    "network__users": {"uplink_mbps": 4.0, "downlink_mbps": 4.0, "latency_s": 0.03},
    "learning": {"model": {"d": 400_000, "macs": 1.0}, "dataset": {"kind": "synthetic", "train": 12}},
    "dropout": {"rate": 0.2},
    "protocols": ["secagg_plus", "lightsecagg"],
}
"""Where masks take long, LightSecAgg's few are the fastest, unless its shares take long."""


@pytest.fixture(scope="module")
def answer() -> Answer:
    return plan(small(**SLOW_MASKS))


@pytest.mark.ci
def test_the_answer_changes_at_the_factor(answer: Answer) -> None:
    assert answer.best.name == "lightsecagg"
    found = list(crossovers(answer))
    (slower,) = (flip for flip in found if flip.given == LINKS)
    assert slower.factor < 1
    trial = Trial(answer.fleet, answer.world, answer.candidates)
    for flip in found:
        assert flip.best != answer.best.name
        assert 1 / FURTHEST <= flip.factor <= FURTHEST
        assert trial.best({flip.given: flip.factor})[0] == flip.best
        assert trial.best({flip.given: flip.factor**0.5})[0] in (flip.best, answer.best.name)
        assert trial.best({flip.given: 1.0})[0] == answer.best.name


def test_changed_fleets_have_other_losses_and_colluders() -> None:
    fleet = small()
    more = changed_fleet(fleet, LOSSES, 2.0)
    assert more is not None
    assert more.dropout.model_dump()["q"] == 0.04
    assert changed_fleet(fleet, LOSSES, 100.0) is None  # no probability
    fewer = changed_fleet(fleet, COLLUDERS, 0.5)
    assert fewer is not None
    assert fewer.colluders == 1
    assert changed_fleet(fleet, COLLUDERS, 8.0) is None  # more than there are users
    assert changed_fleet(small(dropout="none"), LOSSES, 2.0) is None
