"""The attack on recorded runs: what random selection gives away and batches keep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simfl
from simfl.errors import BadInput
from simfl.privacy.recorded import Attack, attack
from tests.engine.harness import ROOT

SCENARIO = ROOT / "scenarios" / "reconstruction.yaml"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped study without masks: what is attacked is the same sums."""
    path = tmp_path_factory.mktemp("run")
    entries: dict[str, Any] = {
        "random": {"protocol": "fedavg"},
        "batches": {"protocol": "fedavg", "selection": {"kind": "multi_round", "users": 8, "T": 2}},
    }
    overrides = {"protocols": entries, "learning.evaluate_every": 200}
    simfl.run(SCENARIO, overrides, out=path)
    return path


def of(folder: Path, name: str, **window: Any) -> Attack:
    return attack(folder / f"updates-{name}.npz", **window)


def test_random_selection_gives_every_user_away(folder: Path) -> None:
    found = of(folder, "random")
    assert (found.rank, found.aggregates, found.first, found.last) == (40, 80, 120, 199)
    assert np.isfinite(found.errors).all()
    assert found.errors.mean() < 0.05
    assert found.alone == tuple(range(40))
    assert found.groups == ()


def test_batches_of_two_keep_their_users(folder: Path) -> None:
    found = of(folder, "batches")
    assert found.rank == 20
    assert found.errors.mean() > 0.3
    assert found.alone == ()
    assert found.groups == tuple((k, k + 1) for k in range(0, 40, 2))


def test_few_rounds_give_little_away(folder: Path) -> None:
    early = of(folder, "random", first=0, last=9)
    assert early.rank == 10
    assert early.errors[np.isfinite(early.errors)].mean() > 0.3
    assert np.isnan(early.errors).any()  # who took no part has no error


def test_the_window_is_the_last_2_n_rounds_unless_given(folder: Path) -> None:
    assert of(folder, "random").errors.tolist() == of(folder, "random", first=120, last=199).errors.tolist()
    with pytest.raises(BadInput, match="no aggregate in rounds 900 to None; there are rounds 0 to 199"):
        of(folder, "random", first=900)


def test_constant_updates_are_solved_exactly(tmp_path: Path) -> None:
    """Three users with fixed updates and weights, the rounds of section 3.2: {0, 1}, {1, 2}, {0, 2}."""
    updates, weights = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 4.0]], np.float32), np.array([2.0, 5.0, 1.0])
    rounds = [(0, 1), (1, 2), (0, 2)]
    members = np.concatenate(rounds)
    means = np.stack([np.average(updates[list(r)], axis=0, weights=weights[list(r)]) for r in rounds])
    write(tmp_path, members=members, weights=weights[members], updates=updates[members], means=means)
    found = attack(tmp_path / "updates-x.npz")
    np.testing.assert_allclose(found.errors, 0, atol=1e-12)
    assert found.alone == (0, 1, 2)


def write(folder: Path, **arrays: Any) -> None:
    which = np.array([0, 0, 1, 1, 2, 2])
    kept = {"users": np.array(3), "rounds": np.arange(3), "which": which, **arrays}
    np.savez(folder / "updates-x.npz", **kept)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": None}, "no weights among its arrays"),
        ({"updates": np.zeros((5, 2), np.float32)}, "do not fit together"),
        ({"members": np.array([0, 1, 2, 3, 0, 1])}, "do not fit together"),
        ({"means": np.zeros((3, 7))}, "do not fit together"),
        ({"members": np.array([0, 1, 2, -1, 0, 1])}, "do not fit together"),
        ({"members": np.array(3)}, "members is int64 of 0 dimensions, expected integers of 1"),
        ({"members": np.ones(6)}, "members is float64 of 1 dimensions, expected integers of 1"),
        ({"weights": np.full(6, np.nan)}, "weights has values that are infinite or NaN"),
        ({"updates": np.zeros((6, 0), np.float32), "means": np.zeros((3, 0))}, "do not fit together"),
        ({"users": np.array(10**12)}, "1000000000000 users, 3 rounds and 2 parameters take more than 4 GB"),
        ({"means": np.array([[object()]])}, "cannot be read"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {
        "members": np.array([0, 1, 1, 2, 0, 2]),
        "weights": np.ones(6),
        "updates": np.ones((6, 2), np.float32),
        "means": np.ones((3, 2)),
    }
    write(tmp_path, **{name: value for name, value in {**good, **change}.items() if value is not None})
    with pytest.raises(BadInput, match=message):
        attack(tmp_path / "updates-x.npz")


def test_what_is_no_file_at_all_is_refused(tmp_path: Path) -> None:
    (tmp_path / "updates-x.npz").write_text("not an archive")
    with pytest.raises(BadInput, match="cannot be read"):
        attack(tmp_path / "updates-x.npz")
    with pytest.raises(BadInput, match="cannot be read"):
        attack(tmp_path / "updates-y.npz")
