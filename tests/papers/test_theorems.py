"""The entries on theorems: their measurements by hand or by brute force, and judgements that can fail."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest

from papers import (
    ccesa_d1,
    ccesa_reliability,
    ccesa_table_g2,
    lightsecagg_cg,
    lightsecagg_f2,
    lightsecagg_lemma2,
    lightsecagg_theorem2,
    multi_round_ablation,
    multi_round_corollary1,
    multi_round_fairness,
    multi_round_remark6,
    multi_round_theorem2,
    multi_round_theorem3,
    multi_round_unequal,
)
from papers.multi_round_fig3 import SCHEMES
from papers.selected import participation
from simfl.runs.multi_round_privacy.metrics import strong_over_time
from simfl.world.selection import Bernoulli, MultiRound, Random


def test_rows_are_rounds_of_k_online_users() -> None:
    rng = np.random.default_rng(1)
    P = participation(MultiRound(users=4, T=2), np.array([0.0] * 6 + [1.0] * 2), 400, rng)
    assert P.sum(1).tolist() == [4] * 400
    assert not P[:, 6:].any()
    assert (P[:, ::2] == P[:, 1::2]).all()
    assert np.ptp(P[:, :6].sum(0)) <= 4  # Algorithm 2 evens out, so it knows the rounds before
    nobody = participation(Random(users=4), np.ones(8), 3, rng)
    assert not nobody.any()


@pytest.mark.ci(only=["5-2-2"])
@pytest.mark.parametrize(
    ("N", "K", "T"), [(4, 2, 1), (4, 2, 2), (5, 2, 2), pytest.param(6, 2, 2, marks=pytest.mark.slow)]
)
def test_the_largest_family_by_all_families(N: int, K: int, T: int) -> None:
    sets = list(combinations(range(N), K))
    rows = np.array([[user in chosen for user in range(N)] for chosen in sets], np.int64)
    best = 0
    for family in range(1, 1 << len(sets)):
        chosen = [k for k in range(len(sets)) if family >> k & 1]
        if len(chosen) > best and (strong_over_time(rows[chosen])[-1] or 0) >= T:
            best = len(chosen)
    assert multi_round_remark6.largest(N, K, T) == best


@pytest.mark.ci
def test_shares_of_small_ranks_by_hand() -> None:
    """N = 2: of i.i.d. rows with t = 1/2, 6 of 16 matrices are regular; K-uniform rows differ in 1 of 2."""
    t = 0.5 / (1 - multi_round_theorem3.AWAY)
    found = multi_round_theorem3.falls_short(Bernoulli(probability=t), 2, 2000, seed=1)
    assert found == pytest.approx(10 / 16, abs=0.04)


def test_ranks_are_judged() -> None:
    assert multi_round_theorem3.cell("i.i.d.", 40, 8, 0.012, 0.011, 4000).agrees
    assert not multi_round_theorem3.cell("i.i.d.", 40, 8, 0.02, 0.011, 4000).agrees
    assert multi_round_theorem3.cell("K-uniform", 40, 8, 0.02, 0.011, 4000).agrees is None
    assert not multi_round_theorem3.falling("x", [20, 30, 40], [0.5, 0.3, 0.01]).agrees


def test_the_noise_of_fairness_by_hand() -> None:
    """Means of ranges of normal values from tables; T = 6, never away: n = 20, k = 2."""
    assert multi_round_fairness.mean_range(20) == pytest.approx(3.735, abs=1e-3)
    F = np.array([0.08, 0.04, 0.02])
    assert multi_round_fairness.judged(3, F)[0].agrees
    assert not multi_round_fairness.judged(3, np.array([0.08, 0.05, 0.04]))[0].agrees
    assert not multi_round_fairness.judged(3, 1.3 * F)[1].agrees


def test_the_ablation_is_judged() -> None:
    few, many = np.array([0.02]), np.array([4.9])
    assert all(cell.agrees for cell in multi_round_unequal.ablation(120, 24, {24: few, 6: many}))
    wrong = multi_round_unequal.ablation(120, 24, {24: np.array([3.0]), 6: many})
    assert [cell.agrees for cell in wrong] == [False, False]


def test_the_ridge_is_known_exactly() -> None:
    """The gradient of the mean loss is 0 at x*, and L_i* is below any L_i."""
    ridge = multi_round_theorem2.problem(1)
    best, least, own = ridge.least()
    assert np.abs(ridge.hessians.mean(0) @ best - ridge.linear.mean(0)).max() < 1e-12
    assert own < least < ridge.loss(best[None] + 0.01)[0]
    numbers = np.arange(multi_round_theorem2.SAMPLES)
    full = ridge.samples(np.zeros((numbers.size, 10)), np.zeros_like(numbers), numbers).mean(0)
    assert full == pytest.approx(-ridge.linear[0])
    mu, rho = multi_round_theorem2.constants(ridge)
    assert multi_round_theorem2.RIDGE < mu < rho


def test_rounds_to_a_target_by_hand() -> None:
    """C is 12 and 1.561 users: 7.686 times as many rounds."""
    falling = np.exp(-np.arange(1001) / 100)
    slow = np.exp(-np.arange(1001) / 768.6)
    (cell,) = multi_round_theorem2.to_target({1: falling, 12: slow})
    assert cell.agrees
    (cell,) = multi_round_theorem2.to_target({1: falling, 12: falling})
    assert not cell.agrees


def test_a_bound_above_the_start_is_by_construction() -> None:
    gap = np.array([10.0, 2.0])
    cells = [multi_round_theorem2.below(1, 1, bound, gap) for bound in (20.0, 5.0, 1.0)]
    assert [cell.basis for cell in cells] == ["by construction", "predicted", "predicted"]
    assert [cell.agrees for cell in cells] == [True, True, False]
    assert cells[0].remark == "10 times below; the start is too, at 10"


def test_completed_rounds_are_counted_apart() -> None:
    """Of two runs, one skips every second round: after k completed rounds both have the same loss."""
    rounds = np.arange(9)
    gap = np.stack([100.0 - rounds, 100.0 - rounds // 2], axis=1)
    held = np.array([[True] * 8, [False, True] * 4])
    assert multi_round_theorem2.by_completed(gap, held).tolist() == [100, 99, 98, 97, 96]
    falling = np.exp(-np.arange(1001) / 100)
    slow = np.exp(-np.arange(1001) / 120)
    (cell,) = multi_round_theorem2.completed_to_target({1: falling, 12: falling}, 0.1)
    assert cell.agrees
    (cell,) = multi_round_theorem2.completed_to_target({1: falling, 12: slow}, 0.1)
    assert not cell.agrees


@pytest.mark.ci
def test_corollary_1_is_an_equality_for_one_error() -> None:
    """Of constant vectors, and twice as many sums as said."""
    rng = np.random.default_rng(0)
    vectors = np.ones((20_000, 12, 10))
    mean, error = multi_round_corollary1.sums(vectors, 6.0, rng)
    assert mean == pytest.approx(0.5 * 12**2 * 10, abs=4 * error)
    tight, own, following = multi_round_corollary1.cells_of(12, 6.0, rng)
    assert tight.agrees
    assert own.agrees
    assert following.agrees
    assert not replace(tight, ours=1.1 * tight.ours).agrees


def test_accuracies_of_the_ablation_are_judged() -> None:
    none, high, low = ([0.0] * 5, []), ([90.0] * 5, []), ([80.0] * 5, [])
    good = {**dict.fromkeys(SCHEMES, high), "partition": none}
    cells = [cell for cell in multi_round_ablation.judged("(120, 24)", good) if cell.compare == "order"]
    assert all(cell.agrees for cell in cells)
    assert len(cells) == 8
    bad = {**dict.fromkeys(SCHEMES, low), "random": high}
    cells = [cell for cell in multi_round_ablation.judged("(120, 24)", bad) if cell.compare == "order"]
    assert [cell.agrees for cell in cells] == [True, *[False, True] * 3, False]


def test_measured_rounds_stay_below_theorem_5(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ccesa_table_g2, "ROUNDS", 20)
    assert ccesa_table_g2.measured(0.1).agrees
    monkeypatch.setattr(ccesa_table_g2, "round_of", lambda *_: SimpleNamespace(reliable=False))
    assert not ccesa_table_g2.measured(0.1).agrees


def test_bytes_of_d1_are_distinguished() -> None:
    """SA of 10: 244 x 9 + 100 bytes, and 44 x 9 + 84 beyond."""
    found, neighbours = ccesa_d1.counted("secagg", 10)
    assert neighbours == 9
    assert found["public keys"] + found["shares"] == ccesa_d1.stated(9) == 2296
    assert sum(found.values()) == 2296 + 480
    assert found["tags"] == 2 * 16 * 9
    assert [cell.agrees for cell in ccesa_d1.of_protocol("SA", found, 9)] == [True, True]
    assert [cell.agrees for cell in ccesa_d1.of_protocol("SA", found, 8)] == [False, False]


def test_shares_of_resources_and_of_turbo_aggregate() -> None:
    """250.75 of 1,000 keys; 28.3 of 40. D.1's mean degree is 249.75, and 27.3."""
    assert ccesa_d1.percent("x", 0.0251, "").agrees
    assert not ccesa_d1.percent("x", 0.0349 + 0.0002, "").agrees
    assert not ccesa_d1.percent("x", 0.0249, "").agrees
    assert [(round(float(c.ours or 0), 2), c.agrees) for c in ccesa_d1.resources()] == [
        (0.25, False), (0.25, False), (0.7, True)
    ]  # fmt: skip


def test_rounds_of_ccesa_are_judged_where_the_text_does() -> None:
    assert ccesa_reliability.cell(0.25, ccesa_reliability.ROUNDS).agrees
    assert not ccesa_reliability.cell(0.25, ccesa_reliability.ROUNDS - 1).agrees
    assert ccesa_reliability.cell(0.2, 3).agrees is None
    assert ccesa_reliability.round_of(0.3106, 0).reliable
    assert not ccesa_reliability.round_of(0.1, 0).reliable


def test_masks_of_one_round_cancel_and_others_do_not() -> None:
    of = {t: lightsecagg_f2.masks("secagg", t) for t in (0, 1)}
    assert all(cell.agrees for cell in lightsecagg_f2.judged("SecAgg", of))
    assert [c.agrees for c in lightsecagg_f2.judged("SecAgg", {0: of[0], 1: of[0]})] == [True, False, False]


def test_the_buffer_holds_two_versions() -> None:
    result, total = lightsecagg_f2.buffered()
    assert sorted(m.staleness for m in result.members) == [0, 1]
    assert (result.total.content[0] == total).all()


def test_rounding_is_judged() -> None:
    x = np.full(lightsecagg_lemma2.D, 0.25)
    bias, square = lightsecagg_lemma2.error(x, 1)  # to 0 or 1: variance 3/16 a coordinate
    assert square == pytest.approx(lightsecagg_lemma2.D * 3 / 16, rel=0.01)
    assert lightsecagg_lemma2.unbiased(1, bias).agrees
    assert not lightsecagg_lemma2.unbiased(1, 0.01).agrees


@pytest.mark.ci
def test_rounded_weights_are_judged_at_64_levels() -> None:
    real = [0.95, 0.94, 0.96]
    for by, word in (
        ((-0.002, -0.001, 0.0), "the same as real weights"),
        ((-0.01, -0.011, -0.009), "another"),
        ((-0.02, 0.0, 0.02), "undecided"),
    ):
        rounded = [a + b for a, b in zip(real, by, strict=True)]
        found = lightsecagg_cg.cell(64, rounded, real, 0.01)
        assert (found.ours, found.agrees) == (word, word.startswith("the same"))
        assert lightsecagg_cg.cell(1, rounded, real, 0.5).agrees is None
    assert lightsecagg_cg.deviation(64) < lightsecagg_cg.deviation(4) / 5


def test_eq_39_is_judged_as_printed() -> None:
    """From a gap of 50, 20 is below 2 50 / (5e-5 10 8000) and above a tenth of it."""
    found = lightsecagg_theorem2.Found(gradient2=20.0, gap=50.0, G=1.0, sigma_g2=0.1)
    printed, corrected = lightsecagg_theorem2.judged("x", found, 2**16, 0)
    assert (printed.agrees, corrected.agrees) == (False, None)
    assert isinstance(corrected.ours, float)
    assert corrected.ours < 1
