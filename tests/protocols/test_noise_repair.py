"""Repair of noise (XNoise): parts that are removed, and what is left of the variance."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import simfl
from simfl.errors import BadInput
from simfl.protocols.noise import DifferentialPrivacy, noise_shares

KINDS = ("secagg", "secagg_plus", "ccesa", "lightsecagg")
DP = {"mechanism": "skellam", "clip": 0.5, "noise_multiplier": 0.5, "bits": 16, "dropout": {"repair": 0.3}}


def noisy(**changes: object) -> DifferentialPrivacy:
    return DifferentialPrivacy.model_validate({**DP, **changes})


@pytest.mark.parametrize("users", [2, 3, 10, 64])
def test_exactly_the_promised_variance_is_left(users: int) -> None:
    """In fractions, for each number of losses up to each tolerated number of them."""
    for tolerated in range(users):
        parts = noise_shares(users, users, tolerated)
        assert len(parts) == 1 + tolerated
        for lost in range(tolerated + 1):
            assert (users - lost) * sum(parts[: 1 + lost]) == 1
        # One loss more, and noise is missing.
        assert (users - tolerated - 1) * sum(parts) < 1


def test_parts_are_those_of_the_paper() -> None:
    """Variance sigma_local^2 n / ((n - k) (n - k + 1)), with sigma_local^2 = sigma^2 / n, n = 5."""
    local = Fraction(1, 5)
    expected = [local, *(local * 5 / ((5 - k) * (5 - k + 1)) for k in (1, 2, 3))]
    assert noise_shares(5, 5, 3) == expected


def test_present_variance_by_treatment() -> None:
    """Ten users, of whom three are tolerated: with 10, 8, 7 and 6 survivors."""
    of = {
        "nothing": (1, 0.8, 0.7, 0.6),
        "worst_case": (10 / 7, 8 / 7, 1, 6 / 7),
        "repair": (1, 1, 1, 6 / 7),
    }
    for kind, expected in of.items():
        dropout = {"kind": kind} if kind == "nothing" else {kind: 0.3}
        shares = [noisy(dropout=dropout).present(10, n) for n in (10, 8, 7, 6)]
        assert shares == pytest.approx(expected)
    assert noisy(mechanism="gaussian", dropout={"kind": "nothing"}).present(10, 2) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lost", [(), ("upload",), ("shares", "upload", "upload", "recovery", "recovery")])
def test_repaired_sum_is_exact_under_losses(kind: str, lost: tuple[str, ...]) -> None:
    """Ten users, of whom 0, 1 or 3 send no update and 2 none but that: parts 0 to L by name are left."""
    losses = [{"user": k, "round": 0, "at": at, "when": "before_send"} for k, at in enumerate(lost)]
    # CCESA's own t is 8 of ten, by its rule for reliability.
    block = {"p": 0.95, "t": 4} if kind == "ccesa" else {}
    changes = {
        "rounds": 1,
        "protocols": {kind: {"protocol": kind, **block}},
        "dp": DP,
        "dropout": {"script": losses},
        "privacy.T": 2,
    }
    result = simfl.run("scenarios/dp.yaml", {**changes, "privacy.U": 5})
    (only,) = result.protocols[kind].rounds
    assert only.survivors == 10 - sum(at != "recovery" for at in lost)
    assert only.aggregate_exact


def test_repair_costs_bytes_and_work() -> None:
    """Shares of three seeds among ten users, and the answer's share of each seed that is removed."""
    up = {}
    for dropout in ("nothing", {"repair": 0.3}):
        changes = {"rounds": 1, "protocols": ["secagg"], "dropout.rate": 0.0, "dp.dropout": dropout}
        up[str(dropout)] = simfl.run("scenarios/dp.yaml", changes).protocols["secagg"].rounds[0].bytes_up
    plain, repaired = up.values()
    # Ten users: 9 sealed rows of 3 shares, and an answer of 10 users' 3 shares.
    assert repaired - plain >= 10 * (9 * (3 * 36 + 16) + 10 * 3 * 36)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dp.mechanism": "discrete_gaussian"}, "repair must go with skellam, not discrete_gaussian"),
        ({"dp.mechanism": "gaussian"}, "repair must go with skellam, not gaussian"),
        (
            {"protocols": ["fedavg"]},
            "repair does not go with protocol fedavg: its users hold no shares of each",
        ),
    ],
)
def test_repair_is_refused_with_its_reason(changes: dict[str, object], message: str) -> None:
    protocols = {"protocols": ["secagg"], "dp.dropout": {"repair": 0.3}}
    with pytest.raises(BadInput, match=message):
        simfl.check("scenarios/dp.yaml", protocols | changes)


def test_removed_noise_is_that_of_its_seeds() -> None:
    """Without losses, repair ends with the sum of parts 0: another noise than that without repair adds."""
    sums = []
    for dropout in ({"repair": 0.0}, {"repair": 0.3}):
        changes = {"rounds": 1, "protocols": ["secagg"], "dropout.rate": 0.0, "dp.dropout": dropout}
        result = simfl.run("scenarios/dp.yaml", {**changes, "record_updates": True})
        sums.append(result.updates["secagg"][0].mean)
    assert np.array_equal(*sums)
