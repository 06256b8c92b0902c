"""simfl.protocols.graph_design: the papers' tables, exact sums over small cases, and what really happens."""

import math
from fractions import Fraction as Fr
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.protocols import graph_design
from simfl.protocols.graph_design import Failure, design, failure
from simfl.protocols.graphs import Evolution
from tests.sizes import examples

# --- CCESA: the paper's tables --------------------------------------------------------------------
TABLE_2 = [(100, 0, 0.6362, 43), (100, 0.1, 0.7953, 51), (300, 0, 0.4109, 83), (300, 0.1, 0.5136, 98)]
TABLE_2 += [(500, 0, 0.3327, 112), (500, 0.1, 0.4159, 133)]

TABLE_G2 = {
    0.00: [0.636, 0.484, 0.411, 0.365, 0.333, 0.308, 0.289, 0.273, 0.260, 0.248],
    0.01: [0.649, 0.494, 0.419, 0.373, 0.340, 0.315, 0.295, 0.280, 0.265, 0.254],
    0.05: [0.707, 0.538, 0.457, 0.406, 0.370, 0.344, 0.321, 0.304, 0.289, 0.276],
    0.10: [0.795, 0.605, 0.513, 0.456, 0.416, 0.385, 0.361, 0.341, 0.325, 0.311],
}
"""q_total -> p* for n = 100, 200, ..., 1000."""

MISPRINTS = {(800, 0.01): 0.2787, (600, 0.05): 0.3426}
"""Two cells contradict the others of the table. All are decided by eq. 5's second term, so each row is the
first one divided by 1 - 2 q_total: 0.273 / 0.98 = 0.279, not 0.280, and 0.308 / 0.9 = 0.342, not 0.344."""


@pytest.mark.parametrize(("n", "q_total", "p", "t"), TABLE_2)
def test_p_star_and_t_are_those_of_table_2(n, q_total, p, t):
    assert round(graph_design.p_star(n, q_total), 4) == p
    assert graph_design.threshold(n, graph_design.p_star(n, q_total)) == t


def test_p_star_is_that_of_table_g2_up_to_its_misprints():
    off = {}
    for q_total, row in TABLE_G2.items():
        for n, printed in zip(range(100, 1001, 100), row, strict=True):
            if abs(graph_design.p_star(n, q_total) - printed) > 0.001:
                off[n, q_total] = round(graph_design.p_star(n, q_total), 4)
    assert off == MISPRINTS


@pytest.mark.parametrize(("n", "q_total", "p", "t"), TABLE_2)
def test_errors_at_p_star_are_at_most_the_papers(n, q_total, p, t):
    """Section 4.3.2 and Fig. 3: privacy below 1e-40, reliability about 1e-2 and less."""
    assert 0 < graph_design.not_private_bound(n, p, q_total) < 1e-40
    assert 0 < graph_design.unreliable_bound(n, p, q_total, t) < 1.1e-2


@pytest.mark.parametrize(("n", "q_total"), [(100, 0.5), (100, 0.9), (100, 1), (2, 0), (3, 0.1), (9, 0.49)])
def test_p_star_is_infinite_where_eq_5_is_undefined(n, q_total):
    assert graph_design.p_star(n, q_total) == math.inf


@pytest.mark.parametrize(("n", "q_total"), [(3, 0.05), (10, 0.49), (100, 0.499)])
def test_p_star_may_exceed_one(n, q_total):
    """n = 3: ceil(3 * 0.95^(3/4) - 1.82) = ceil(1.07) = 2 users are left, where 0.1 leaves ceil(0.96) = 1."""
    assert 1 < graph_design.p_star(n, q_total) < math.inf


@given(st.floats(0, 1))
@settings(deadline=None, derandomize=True)
def test_four_steps_make_up_the_whole(q_total):
    assert (1 - graph_design.step_rate(q_total)) ** 4 == pytest.approx(1 - q_total, abs=1e-12)


def test_no_threshold_lets_one_neighbour_alone_reconstruct():
    assert graph_design.threshold(2, 1) == graph_design.threshold(4, 0) == 2


# --- CCESA: the bounds, exactly -------------------------------------------------------------------
STEP = {Fr(0): 0.0, Fr(1, 2): 0.9375, Fr(1, 10): 0.3439, Fr(1, 100): 0.03940399, Fr(1): 1.0}
"""q -> q_total = 1 - (1 - q)^4, exact in decimals."""


def binomial(n, p, k):
    return math.comb(n, k) * p**k * (1 - p) ** (n - k)


@pytest.mark.parametrize("q", STEP)
@pytest.mark.parametrize(("n", "p"), [(1, Fr(1, 2)), (2, Fr(0)), (9, Fr(4, 5)), (12, Fr(1)), (41, Fr(9, 10))])
def test_theorem_6_is_summed_without_loss(n, p, q):
    stays = (1 - q) ** 3
    exact = sum(
        binomial(n, stays, m) * sum(math.comb(m, k) * (1 - p) ** (k * (m - k)) for k in range(1, m // 2 + 1))
        for m in range(n + 1)
    )
    assert graph_design.not_private_bound(n, float(p), STEP[q]) == pytest.approx(
        min(1.0, float(exact)), rel=1e-9
    )


def test_theorem_6_is_not_lost_to_rounding():
    """At q = 0 the lone user dominates: n (1 - p)^(n - 1). What no float holds is told as the least one."""
    assert graph_design.not_private_bound(100, 0.9, 0) == pytest.approx(1e-97, rel=1e-9)
    assert graph_design.not_private_bound(300, 0.9, 0) == pytest.approx(3e-297, rel=1e-9)
    assert graph_design.not_private_bound(400, 0.9, 0) == math.ulp(0.0)
    assert graph_design.not_private_bound(400, 1, 0.1) == 0


@pytest.mark.parametrize("t", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("q", STEP)
@pytest.mark.parametrize(("n", "p"), [(2, Fr(1)), (8, Fr(9, 10)), (30, Fr(7, 10)), (30, Fr(1))])
def test_theorem_5_is_chernoff_over_the_exact_tail(n, p, q, t):
    a, b = (t - 1) / (n - 1), float(p * (1 - q) ** 4)
    bound = graph_design.unreliable_bound(n, float(p), STEP[q], t)
    exact = n * sum(binomial(n - 1, p * (1 - q) ** 4, k) for k in range(min(t, n)))
    assert bound >= min(1, exact) * (1 - 1e-9)
    if a >= b:
        assert bound == 1
    elif b < 1:
        divergence = (a * math.log(a / b) if a else 0) + (1 - a) * math.log((1 - a) / (1 - b))
        assert bound == pytest.approx(min(1, n * math.exp(-(n - 1) * divergence)), rel=1e-6)
    else:
        assert bound == 0


@pytest.mark.parametrize(
    ("n", "p", "t"), [(10, Fr(1, 2), 3), (40, Fr(1, 5), 9), (40, Fr(1), 20), (9, Fr(0), 1)]
)
def test_the_unmasking_bound_is_the_exact_tail(n, p, t):
    exact = n * sum(binomial(n - 1, p, k) for k in range(2 * t - 1, n))
    assert graph_design.unmasking_bound(n, float(p), t) == pytest.approx(min(1.0, float(exact)), rel=1e-9)


@pytest.mark.ci
def test_bounds_hold_for_every_outcome_of_four_users():
    """All 64 graphs times all 5^4 ways to be lost, each with its probability: how often a round is not
    reliable (an empty V3 aside) or not private, against Theorems 5 and 6. Both say something here."""
    n, p, q, t = 4, 0.95, 0.01, 2
    weight = [q * (1 - q) ** step for step in range(4)] + [(1 - q) ** 4]
    pairs = list(combinations(range(n), 2))
    unreliable = not_private = total = 0.0
    for there in product((0, 1), repeat=len(pairs)):
        edges = [e for e, t_ in zip(pairs, there, strict=True) if t_]
        graph = {i: tuple(j for j in range(n) if i == j or tuple(sorted((i, j))) in edges) for i in range(n)}
        of_graph = p ** len(edges) * (1 - p) ** (len(pairs) - len(edges))
        for steps in product(range(5), repeat=n):
            V1, V2, V3, V4 = (frozenset(i for i in range(n) if steps[i] > step) for step in range(4))
            e = Evolution(graph, dict.fromkeys(graph, t), V1, V2, V3, V4)
            probability = of_graph * math.prod(weight[step] for step in steps)
            total += probability
            unreliable += probability * (bool(V3) and not e.reliable)
            not_private += probability * (not e.private)
    assert total == pytest.approx(1)
    q_total = 1 - (1 - q) ** 4
    assert 0 < unreliable < graph_design.unreliable_bound(n, p, q_total, t) < 0.5
    assert 0 < not_private < graph_design.not_private_bound(n, p, q_total) < 0.01


# --- SecAgg+: the design --------------------------------------------------------------------------
@pytest.mark.ci(but=["0-0", "8-8"])
@pytest.mark.parametrize(
    ("T", "D"), [(0, 0), (0, 6), (2, 0), (4, 5), (6, 0), (7, 1), (8, 8), (12, 7), (20, 3)]
)
def test_the_design_is_the_best_of_all(T, D):
    n, sigma, eta = 24, 8, 5

    def excess(k, t):
        f = failure(n, k, t, T, D)
        return max(f.insecure * 2**sigma, f.incorrect * 2**eta)

    enough = [k for k in range(2, n) if min(excess(k, t) for t in range(2, n + 1)) <= 1]
    k, t = design(n, T, D, sigma, eta)
    assert k == enough[0]
    if k < n - 1:
        assert excess(k, t) == min(excess(k, t) for t in range(2, n + 1))
    else:
        assert t == max(2, T + 1)


@given(st.integers(3, 60), st.data())
@settings(max_examples=examples(50), deadline=None, derandomize=True)
def test_the_design_reaches_its_goal_where_anything_does(n, data):
    T = data.draw(st.integers(0, n - 2))
    D = data.draw(st.integers(0, n - max(2, T + 1)))
    k, t = design(n, T, D)
    assert 2 <= t <= k + 1 <= n
    found = failure(n, k, t, T, D)
    assert found.insecure <= 2**-40
    assert found.incorrect <= 2**-30


def test_without_any_way_the_design_keeps_the_secrets():
    assert design(10, 6, 4) == (9, 7)
    assert failure(10, 9, 7, 6, 4) == Failure(0.0, 1.0)
    assert design(2, 0, 0) == (1, 2)
    assert design(1, 0, 0) == (0, 2)


def test_a_given_k_or_t_stays():
    k, t = design(200, 20, 40)
    assert design(200, 20, 40, k=k) == (k, t)
    assert design(200, 20, 40, t=t) == (k, t)
    assert design(200, 20, 40, t=t + 3)[0] > k
    assert design(200, 20, 40, t=t + 3)[1] == t + 3
    few, chosen = design(200, 20, 40, k=10)
    assert few == 10
    assert 2 <= chosen <= 11
    assert design(200, 20, 40, k=500, t=30) == (199, 30)
    assert design(200, 20, 40, k=10, t=30) == (10, 30)
    assert design(200, 20, 40, t=190) == (199, 190)
    assert design(100, 0, 0, t=10) == (9, 10)  # so many must be there to hold a share each


PUBLISHED = [
    (100, 45, 45, 92, 46), (1000, 450, 450, 822, 417), (10, 3, 3, 8, 4), (100, 33, 33, 68, 34),
    (1000, 330, 330, 286, 150), (10_000, 3300, 3300, 422, 221), (100_000, 33_000, 33_000, 480, 251),
    (1000, 50, 330, 72, 24), (10_000, 500, 3300, 86, 29), (100, 33, 5, 34, 29), (1000, 330, 50, 78, 60),
    (10_000, 3300, 500, 92, 70), (100, 5, 5, 12, 6), (1000, 50, 50, 30, 17), (100_000, 5000, 5000, 36, 21),
    (1000, 0, 330, 38, 2), (100, 0, 0, 2, 2),
]  # fmt: skip
"""n, T, D, k, t for sigma = 40, eta = 20, semi-honest: expected values of Google's own implementation
(federated-compute, graph_parameter_finder_test.cc)."""


@pytest.mark.parametrize(("n", "T", "D", "k", "t"), PUBLISHED)
def test_published_designs_are_confirmed_and_just_reached(n, T, D, k, t):
    """It takes even degrees only, counts neighbours without the user's own share, draws from n instead of
    n - 1 users and halves sigma between E1 and E2: a little more than needed, 15 % at most."""
    told = failure(n, k, t, T, D)
    assert told.insecure <= 2**-40
    assert told.incorrect <= 2**-20
    assert 0.85 * k <= design(n, T, D, sigma=40, eta=20)[0] <= k


# --- what is refused --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: graph_design.p_star(1, 0), "n=1 must be at least 2"),
        (lambda: graph_design.p_star(10, 1.1), "q_total=1.1 must be at least 0 and at most 1"),
        (lambda: graph_design.step_rate(-0.1), "q_total=-0.1 must be"),
        (lambda: graph_design.threshold(10, 2), "p=2 must be"),
        (lambda: graph_design.threshold(1, 1), "n=1 must be"),
        (lambda: graph_design.unreliable_bound(10, 0.5, 0, 0), "t=0 must be at least 1"),
        (lambda: graph_design.unreliable_bound(10, math.nan, 0, 1), "p=nan must be"),
        (lambda: graph_design.not_private_bound(0, 0.5, 0), "n=0 must be at least 1"),
        (lambda: graph_design.not_private_bound(10, 0.5, 7), "q_total=7 must be"),
        (lambda: graph_design.unmasking_bound(10, -1, 3), "p=-1 must be"),
        (lambda: failure(10, 4, 3, 11, 0), "T=11 must be at least 0 and at most n=10"),
        (lambda: failure(10, 4, 3, 0, -1), "D=-1 must be at least 0 and at most n=10"),
        (lambda: failure(10, 4, 0, 0, 0), "t=0 must be"),
        (lambda: failure(10, 1, 2, 0, 0), "k=1 must be at least 2"),
        (lambda: design(10, 0, 0, k=1), "k=1 must be at least 2"),
        (lambda: design(2, 5, 0), "T=5 must be"),
        (lambda: design(10, -1, 0), "T=-1 must be"),
    ],
)
def test_nonsense_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
