"""T, rank and isolation of weighted sums, by brute force over the rationals; buffered runs."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from simfl.errors import BadInput
from simfl.privacy.least_squares import attack_window, isolated
from simfl.privacy.weighted import span, weak
from simfl.runs.folder.result import RecordedUpdates, write_updates
from simfl.runs.multi_round_privacy.metrics import strong_over_time
from simfl.runs.multi_round_privacy.weak import weak_over_time
from simfl.trace import rows
from tests.engine.harness import ASYNC, run
from tests.privacy import oracle
from tests.runs.folder.test_latest import told
from tests.sizes import examples

Array = NDArray[Any]
WEIGHTS = arrays(np.int64, st.tuples(st.integers(1, 5), st.integers(1, 6)), elements=st.integers(0, 3))


def ratios(W: Array) -> Array:
    """Each column by its first weight that is not zero."""
    first = W[(W != 0).argmax(axis=0), range(W.shape[1])]
    return W / np.where(first == 0, 1, first)


def classes(W: Array) -> list[list[int]]:
    """Users with proportional columns, in fractions."""
    found: dict[tuple[Fraction, ...], list[int]] = {}
    for user in np.flatnonzero(W.any(axis=0)).tolist():
        column = [int(w) for w in W[:, user]]
        first = next(w for w in column if w)
        found.setdefault(tuple(Fraction(w, first) for w in column), []).append(user)
    return list(found.values())


@pytest.mark.ci
@given(WEIGHTS)
@settings(deadline=None, max_examples=examples(150))
def test_weak_T_is_that_of_brute_force(W: Array) -> None:
    least = oracle.weak(W)
    assert weak(ratios(W)) == (None if least is None else (least, least))


@given(WEIGHTS)
@settings(deadline=None, max_examples=examples(150))
def test_isolated_users_and_strong_T_are_those_of_the_oracle(W: Array) -> None:
    full, found = oracle.rank(W), classes(W)
    alone = [tuple(c) for c in found if oracle.rank(np.delete(W, c, axis=1)) < full]
    single, several = ([c for c in alone if (len(c) == 1) == one] for one in (True, False))
    assert isolated(ratios(W)) == (full, tuple(c[0] for c in sorted(single)), tuple(sorted(several)))
    assert span(ratios(W)).strong == min(map(len, found), default=None)


@given(WEIGHTS, st.integers(0, 10**6))
@settings(deadline=None, max_examples=examples(50))
def test_a_class_stays_in_one_proportion(W: Array, seed: int) -> None:
    """Any combination of the sums has users of a class in the proportion of their first weights."""
    P, z = ratios(W), np.random.default_rng(seed).integers(-9, 10, len(W))
    for together in classes(W):
        values = z @ P[:, together]
        np.testing.assert_allclose(values, values[0], atol=1e-12)


@given(arrays(np.int64, st.tuples(st.integers(1, 6), st.integers(1, 8)), elements=st.integers(0, 1)))
@settings(deadline=None, max_examples=examples(50))
def test_sums_without_weights_have_the_T_of_rounds(P: Array) -> None:
    assert weak(P) == weak_over_time(P)[-1]
    assert span(P).strong == strong_over_time(P)[-1]


def test_staleness_splits_a_batch() -> None:
    """Two users in the same two sums: weights that change apart tell them apart, weights that change
    together do not."""
    assert weak(np.array([[1, 1], [1, 0.5]])) == (1, 1)
    assert weak(np.array([[1, 1], [0.5, 0.5]])) == (2, 2)
    assert weak(np.array([[1, 1], [1 / 3, 2 / 6]])) == (2, 2)


# --- recorded runs ---------------------------------------------------------------------------------
def test_weights_are_in_the_equations(tmp_path: Path) -> None:
    """Updates that stay the same come back, whatever they are weighted with."""
    rng, truth = np.random.default_rng(3), np.random.default_rng(4).standard_normal((4, 7))
    kept = []
    for index in range(6):
        members, weights = np.sort(rng.permutation(4)[:3]), rng.integers(1, 65, 3).astype(float)
        mean = (weights @ truth[members] / weights.sum()).astype(np.float32)
        kept.append(RecordedUpdates(index, mean, members, weights, truth[members].astype(np.float32)))
    write_updates(tmp_path / "updates-x.npz", kept, 4)
    found = attack_window(tmp_path / "updates-x.npz")
    assert found.errors.max() < 1e-8
    assert (found.rank, found.alone, found.strong, found.weak) == (4, (0, 1, 2, 3), 1, (1, 1))


def test_a_weight_of_nothing_is_refused(tmp_path: Path) -> None:
    one = np.ones((1, 2), np.float32)
    write_updates(tmp_path / "x.npz", [RecordedUpdates(0, one[0], np.array([0]), np.array([0.0]), one)], 2)
    with pytest.raises(BadInput, match="weights must be above 0"):
        attack_window(tmp_path / "x.npz")


@pytest.mark.ci
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_buffered_runs_by_their_traces(
    alpha: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """W from the rows of the trace, with s(tau) = (1 + tau)^-alpha, against what is printed of the run."""
    weighing = {"fedbuff": {"staleness": {"polynomial": alpha}}} if alpha else {"fedbuff": {}}
    result = run({"rounds": 5, "record_updates": True, "protocols": weighing}, base=ASYNC, out=tmp_path)
    W = np.zeros((5, 8), np.int64)
    for row in result.traces["fedbuff"]:
        if isinstance(row, rows.Aggregated):
            for user, _, tau in row.members:
                W[row.round, user] = 60 // (1 + tau) if alpha else 1
    assert not alpha or len(np.unique(W)) > 2
    printed = "".join(told(capsys, 0, "privacy", str(tmp_path)))
    found, least = attack_window(tmp_path / "updates-fedbuff.npz"), oracle.weak(W)
    assert found.rank == oracle.rank(W)
    assert (found.weak, found.strong) == ((least, least), min(map(len, classes(W))))
    assert f"T over these aggregates: weak {least}, strong {found.strong}" in printed


def test_masked_weights_are_those_that_were_sent(tmp_path: Path) -> None:
    """Integers of 1 .. c_g, as the recovery asked for them: rank and T by brute force."""
    weighing = {"lightsecagg_async": {"staleness": {"polynomial": 1.0}, "c_g": 6}}
    run({"rounds": 6, "record_updates": True, "protocols": weighing}, base=ASYNC, out=tmp_path)
    file = tmp_path / "updates-lightsecagg_async.npz"
    held, W = np.load(file), np.zeros((6, 8), np.int64)
    W[held["which"], held["members"]] = held["weights"]
    assert set(np.unique(W)) > {0, 6}
    found, least = attack_window(file), oracle.weak(W)
    assert (found.rank, found.weak) == (oracle.rank(W), (least, least))
    assert found.strong == min(map(len, classes(W)))
