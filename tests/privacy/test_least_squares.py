"""Least squares on many rounds' sums, and on recorded runs: what random selection gives away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

import simfl
from simfl.errors import BadInput
from simfl.privacy.least_squares import WindowResult, attack_window, errors, isolated, reconstruct
from simfl.runs.multi_round_privacy.weak import weak_over_time
from simfl.world.participation import Participation
from simfl.world.selection import MultiRound, Random, Selection
from tests.engine.harness import ROOT
from tests.privacy import oracle

Array = NDArray[Any]
MATRICES = arrays(np.int64, st.tuples(st.integers(1, 6), st.integers(1, 7)), elements=st.integers(0, 1))


def run(scheme: Selection, N: int, J: int, seed: int) -> Array:
    history, rng = Participation(N), np.random.default_rng(seed)
    for _ in range(J):
        history.append(scheme.chosen(range(N), history, rng) or [])
    matrix: Array = history.matrix().toarray().astype(int)
    return matrix


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_constant_updates_are_recovered_at_full_column_rank(dtype: Any) -> None:
    P = run(Random(users=8), 40, 60, 3)
    truth = np.random.default_rng(1).standard_normal((40, 1000)).astype(dtype)
    estimates = reconstruct(P, P.astype(dtype) @ truth)
    assert estimates.dtype == dtype
    e = errors(truth, estimates)
    assert e.max() < (1e-20 if dtype is np.float64 else 1e-8)
    assert isolated(P) == (40, tuple(range(40)), ())


def test_batches_are_split_evenly() -> None:
    """T = 2: both are taken for half their sum, so e_i = ||d_i - d_j||^2 / (4 ||d_i||^2)."""
    P = run(MultiRound(users=4, T=2), 20, 60, 5)
    truth = np.random.default_rng(2).standard_normal((20, 300))
    estimates = reconstruct(P, P @ truth)
    pairs = truth.reshape(10, 2, 300)
    np.testing.assert_allclose(estimates.reshape(10, 2, 300).sum(axis=1), pairs.sum(axis=1), atol=1e-9)
    apart = ((pairs[:, 0] - pairs[:, 1]) ** 2).sum(axis=1)
    np.testing.assert_allclose(
        errors(truth, estimates).reshape(10, 2), apart[:, None] / (4 * (pairs**2).sum(axis=2)), rtol=1e-9
    )
    assert isolated(P) == (10, (), tuple((i, i + 1) for i in range(0, 20, 2)))


def test_noise_is_averaged() -> None:
    """Equation 33's Z: more rounds, smaller errors."""
    rng = np.random.default_rng(8)
    truth, P = rng.standard_normal((20, 400)), run(Random(users=4), 20, 600, 1)
    totals = P @ truth + 0.05 * rng.standard_normal((600, 400))
    few, many = (errors(truth, reconstruct(P[:r], totals[:r])).mean() for r in (40, 600))
    assert many < few / 5
    assert many < 1e-3


@given(MATRICES)
@settings(deadline=None)
def test_it_is_the_least_norm_solution(P: Array) -> None:
    totals = np.random.default_rng(P.size).standard_normal((len(P), 3))
    wanted = np.linalg.lstsq(P.astype(float), totals, rcond=None)[0]
    found = reconstruct(P, totals)
    took_part = P.any(axis=0)
    np.testing.assert_allclose(found[took_part], wanted[took_part], atol=1e-8)
    assert np.isnan(found[~took_part]).all()


@given(MATRICES)
@settings(deadline=None)
def test_isolated_users_are_those_whose_column_lowers_the_rank(P: Array) -> None:
    full = oracle.rank(P)
    classes: dict[tuple[int, ...], list[int]] = {}
    for user in np.flatnonzero(P.any(axis=0)).tolist():
        classes.setdefault(tuple(P[:, user].tolist()), []).append(user)
    alone = [tuple(c) for c in classes.values() if oracle.rank(np.delete(P, c, axis=1)) < full]
    users = [c[0] for c in alone if len(c) == 1]
    assert isolated(P) == (full, tuple(users), tuple(c for c in alone if len(c) > 1))
    assert bool(users) == (weak_over_time(P)[-1] == (1, 1))


def test_absent_users_and_zero_updates_have_their_own_errors() -> None:
    P = np.array([[1, 1, 0, 0], [0, 1, 0, 0], [0, 1, 0, 1]])
    truth = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [0.0, 0.0]])
    e = errors(truth, reconstruct(P, P @ truth))
    assert e[:2] == pytest.approx([0, 0], abs=1e-20)
    assert np.isnan(e[2])
    zero, near = np.zeros((2, 2)), np.array([[0.0, 0.0], [0.0, 1e-9]])
    assert errors(zero, near).tolist() == [0, np.inf]
    assert np.isnan(errors(zero, np.full((2, 2), np.nan))).all()


def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match=r"totals must be \[2 rounds, d\], not of shape \(3, 4\)"):
        reconstruct(np.eye(2, dtype=int), np.zeros((3, 4)))
    with pytest.raises(ValueError, match="the estimates are"):
        errors(np.zeros((2, 3)), np.zeros((2, 4)))


def test_large_updates() -> None:
    P = run(Random(users=3), 10, 25, 0)
    truth = np.random.default_rng(0).standard_normal((10, 200_000)).astype(np.float32)
    assert errors(truth, reconstruct(P, P.astype(np.float32) @ truth)).max() < 1e-8


# --- on a run that recorded its updates ---------------------------------------------------------
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


def of(folder: Path, name: str, **window: Any) -> WindowResult:
    return attack_window(folder / f"updates-{name}.npz", **window)


@pytest.mark.ci
def test_random_selection_gives_every_user_away(folder: Path) -> None:
    found = of(folder, "random")
    assert (found.rank, found.aggregates, found.first, found.last) == (40, 80, 120, 199)
    assert np.isfinite(found.errors).all()
    assert found.errors.mean() < 0.05
    assert found.alone == tuple(range(40))
    assert found.groups == ()


@pytest.mark.ci
def test_batches_of_two_keep_their_users(folder: Path) -> None:
    found = of(folder, "batches")
    assert found.rank == 20
    assert found.errors.mean() > 0.3
    assert found.alone == ()
    assert found.groups == tuple((k, k + 1) for k in range(0, 40, 2))


@pytest.mark.ci
def test_few_rounds_give_little_away(folder: Path) -> None:
    early = of(folder, "random", first=0, last=9)
    assert early.rank == 10
    assert early.errors[np.isfinite(early.errors)].mean() > 0.3
    assert np.isnan(early.errors).any()  # who took no part has no error


@pytest.mark.ci
def test_the_window_is_the_last_2_n_rounds_unless_given(folder: Path) -> None:
    assert of(folder, "random").errors.tolist() == of(folder, "random", first=120, last=199).errors.tolist()
    with pytest.raises(BadInput, match="no aggregate in rounds 900 to 199: choose from 0 to 199"):
        of(folder, "random", first=900)


def test_constant_updates_are_solved_exactly(tmp_path: Path) -> None:
    """Three users with fixed updates and weights, the rounds of section 3.2: {0, 1}, {1, 2}, {0, 2}."""
    updates, weights = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 4.0]], np.float32), np.array([2.0, 5.0, 1.0])
    rounds = [(0, 1), (1, 2), (0, 2)]
    members = np.concatenate(rounds)
    means = np.stack([np.average(updates[list(r)], axis=0, weights=weights[list(r)]) for r in rounds])
    write(tmp_path, members=members, weights=weights[members], updates=updates[members], means=means)
    found = attack_window(tmp_path / "updates-x.npz")
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
        ({"members": np.array(3)}, "members must be integers of 1 dimensions, not int64 of 0 dimensions"),
        ({"members": np.ones(6)}, "members must be integers of 1 dimensions, not float64 of 1 dimensions"),
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
        attack_window(tmp_path / "updates-x.npz")


def test_missing_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "updates-x.npz").write_text("not an archive")
    with pytest.raises(BadInput, match="cannot be read"):
        attack_window(tmp_path / "updates-x.npz")
    with pytest.raises(BadInput, match="is missing"):
        attack_window(tmp_path / "updates-y.npz")
