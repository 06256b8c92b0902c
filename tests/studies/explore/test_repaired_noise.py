"""An explored cohort with repair has the promised noise, whoever is lost; too much or too little is found."""

from __future__ import annotations

import pytest

from simfl.protocols.machine import Params
from simfl.studies.explore.rounds import AnyCohort, explore, make_cohort

REPAIR = {
    "dp.mechanism": "skellam",
    "dp.clip": 0.5,
    "dp.noise_multiplier": 2.0,
    "dp.bits": 16,
    "dp.dropout": {"repair": 0.4},
}


def repaired(protocol: str) -> AnyCohort:
    """Three users, of whom one may be lost."""
    return make_cohort(protocol, 3, overrides=REPAIR)


@pytest.mark.ci(but=["lightsecagg"])
@pytest.mark.parametrize("affected_users", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("protocol", ["secagg", "secagg_plus", "lightsecagg"])
def test_each_loss_pattern_has_the_promised_noise(protocol: str, affected_users: int) -> None:
    """Losses of one user, which is what the noise allows for; in the slow tests those of all three."""
    cohort = repaired(protocol)
    assert explore(cohort, affected_users=affected_users).violation is None
    assert "ok         each sum has the promised noise, of parts by name" in map(str, cohort.invariant_lines)


@pytest.mark.parametrize("error", [-1, 1])
def test_wrong_number_of_removed_parts_is_found(error: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted at both ends: all parties count one loss too many, or one too few."""
    honest = Params.removed

    def removed(p: Params, survivors: int) -> int:
        return min(p.repaired, max(0, honest(p, survivors) + error))

    monkeypatch.setattr(Params, "removed", removed)
    found = explore(repaired("lightsecagg")).violation
    assert found is not None
    assert any("of the promised variance" in text for text in found.invariants)
