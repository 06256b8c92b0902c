"""Rounds whose sum has noise: each protocol's aggregate, its variance, and how losses take noise away."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simfl.crypto import quantize
from simfl.crypto.noisy_rounding import noisy_levels
from simfl.dataplane import audit
from simfl.dataplane.ops import seed_array
from simfl.protocols.fedavg import PlainUpload
from simfl.protocols.machine import SERVER, Refuse
from simfl.protocols.noise import DifferentialPrivacy, WorstCase
from tests.protocols.harness import World, lose_at, world

SETTINGS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "secagg": {"t": 3},
    "secagg_plus": {"t": 3, "k": 4},
    "ccesa": {"t": 3, "p": 1.0},
    "lightsecagg": {"T": 1, "U": 3},
    "disagg": {"m": 5, "t": 1, "U": 3, "D": 3},
    "fastsecagg": {"m": 6, "t": 1, "T": 1, "U": 3, "D": 3},
}
USERS, D = 6, 100


def noise(**keys: Any) -> DifferentialPrivacy:
    given = {"mechanism": "skellam", "clip": 2.0, "noise_multiplier": 1.5, "bits": 16, **keys}
    return DifferentialPrivacy(**given)


def noisy_world(protocol: str, dp: DifferentialPrivacy, seed: int = 0) -> World:
    """Six users with updates of 100 coordinates, about 6.9 long: each is clipped to 2."""
    return world(protocol, USERS, seed=seed, d=D, N=USERS, dp=dp, **SETTINGS[protocol])


def seeds_of(w: World, user: int) -> np.ndarray:
    names = w.params.seed_names(None)
    return np.concatenate([seed_array(w.entropies[user].peek(name)) for name in names])


def clipped_mean(w: World, users: list[int]) -> np.ndarray:
    rows = [w.updates[user].delta.content.astype(float) for user in users]
    assert w.params.dp is not None
    return sum(row * min(1, w.params.dp.clip / np.linalg.norm(row)) for row in rows) / len(users)


@pytest.mark.parametrize("rotation", ["hadamard", "none"])
@pytest.mark.parametrize("mechanism", ["skellam", "discrete_gaussian", "gaussian"])
@pytest.mark.parametrize("protocol", SETTINGS)
def test_aggregate_is_the_sum_of_noisy_levels(protocol: str, mechanism: str, rotation: str) -> None:
    """One user is lost before its upload; its update and its noise are in no sum."""
    dp = noise(mechanism=mechanism, rotation=rotation)
    w = noisy_world(protocol, dp)
    result = w.run(fate=lose_at({4: "upload"})).result
    users = [member.user for member in result.members]
    assert users == [0, 1, 2, 3, 5]
    how = w.params.lattice
    assert how is not None
    levels = sum(noisy_levels(w.updates[u].delta.content, seeds_of(w, u), how) for u in users)
    total = result.total.content
    assert (quantize.signed(total[:, : how.length], w.params.q) == levels).all()
    assert how.length == (128 if rotation == "hadamard" else 100)
    # The last coordinate of a masked sum is the sum of weights: 1 each, and without noise.
    assert total[0, how.length :].tolist() == ([] if protocol == "fedavg" else [5])
    # The mean is that of the clipped updates, but for noise of deviation 1.5 x 2 / 5 in each coordinate.
    error = result.mean.content - clipped_mean(w, users)
    assert error.shape == (1, D)
    # A user's part is missing unless the server adds all of it.
    deviation = 1.5 * 2 / 5 * (1 if mechanism == "gaussian" else math.sqrt(5 / 6))
    assert 0.7 * deviation < error.std() < 1.3 * deviation


@pytest.mark.parametrize(
    ("dropout", "lost", "share"),
    [("nothing", 0, 1), ("nothing", 2, 4 / 6), ("worst", 0, 6 / 4), ("worst", 2, 1)],
)
@pytest.mark.parametrize("mechanism", ["skellam", "discrete_gaussian"])
def test_variance_of_the_sum_is_the_promise(mechanism: str, dropout: str, lost: int, share: float) -> None:
    """60 seeds x 100 coordinates: the variance over (1.5 x 2)^2 is that of the survivors' parts."""
    way = {"kind": "nothing"} if dropout == "nothing" else {"kind": "worst_case", "tolerate": 0.34}
    errors = []
    for seed in range(60):
        w = noisy_world("fedavg", noise(mechanism=mechanism, dropout=way), seed)
        result = w.run(fate=lose_at(dict.fromkeys(range(lost), "upload"))).result
        users = [member.user for member in result.members]
        errors.append((result.mean.content - clipped_mean(w, users)) * len(users))
    variance = np.square(errors).mean() / (1.5 * 2) ** 2
    assert abs(variance / share - 1) < 5 * math.sqrt(2 / (60 * D))


def test_central_noise_is_whole_whatever_is_lost() -> None:
    errors = []
    for seed in range(60):
        w = noisy_world("fedavg", noise(mechanism="gaussian"), seed)
        result = w.run(fate=lose_at({0: "upload", 1: "upload"})).result
        errors.append((result.mean.content - clipped_mean(w, [2, 3, 4, 5])) * 4)
    variance = np.square(errors).mean() / (1.5 * 2) ** 2
    assert abs(variance - 1) < 5 * math.sqrt(2 / (60 * D))


def test_a_round_has_a_rotation_of_its_own() -> None:
    p = noisy_world("secagg", noise()).params
    rotations = {
        replace(p, round=index, session=name).lattice.rotation for index in (0, 1) for name in (b"a", b"b")
    }
    assert len(rotations) == 4


def test_the_audit_repeats_noise_and_rounding() -> None:
    """The plain sum is the aggregate; without one user's noise it differs in nearly all coordinates."""
    w = noisy_world("secagg", noise())
    total, plain = w.run().result.total.content, None
    wrong = None
    for user in range(USERS):
        kernel, (seeds, how) = w.params.contribution(w.entropies[user].peek, None, user + 1, USERS)
        delta = w.updates[user].delta.content
        plain = kernel(plain, delta, seeds, how)
        other = seeds[::-1].copy() if user == 3 else seeds
        wrong = kernel(wrong, delta, other, how)
    assert audit.compare(total, plain, w.params.q).tolist() == [[0, 0, 0]]
    assert audit.compare(total, wrong, w.params.q)[0, 0] > 120


def test_a_noisy_server_refuses_weights_and_shapes() -> None:
    w = noisy_world("fedavg", noise())
    w.server.start()
    sent = w.clients[0].submit(w.updates[0])[0].message
    assert (sent.weight, sent.delta.columns) == (1, 128)
    for user, wrong, why in (
        (0, PlainUpload(sent.delta, 2), "malformed: a weight of 2 instead of 1"),
        (1, PlainUpload(w.updates[0].delta, 1), "malformed: 1 x 100 float32 instead of 1 x 128 uint32"),
    ):
        (refused,) = (e for e in w.server.receive(user, wrong) if isinstance(e, Refuse))
        assert refused.why == why
    # It has noise of its own in a central mechanism alone.
    assert w.entropies[SERVER]("dp noise")


def test_the_fewest_survivors_are_counted_down() -> None:
    assert [WorstCase(tolerate=r).enough(10) for r in (0.0, 0.29, 0.3, 0.99)] == [10, 8, 7, 1]
    assert WorstCase(tolerate=0.9999).enough(2) == 1


@pytest.mark.parametrize(
    ("dropout", "parts"), [({"kind": "nothing"}, 6), ({"kind": "worst_case", "tolerate": 0.5}, 3)]
)
def test_parts_of_noise_add_up_to_the_promise(dropout: dict[str, Any], parts: int) -> None:
    """In steps: the parts that are counted on have (noise_multiplier clip scale)^2 together."""
    how = noise(dropout=dropout).lattice(D, USERS, bytes(32))
    assert math.isclose(sum(how.variances) * parts, (1.5 * 2 * how.scale) ** 2)
    assert how.server_variance == 0
    central = noise(mechanism="gaussian").lattice(D, USERS, bytes(32))
    assert (central.variances, math.isclose(central.server_variance, (3 * central.scale) ** 2)) == ((), True)
