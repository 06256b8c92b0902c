"""SecAgg+'s bounds on a sparse graph's failures, against every placement of colluding and lost users."""

import math
from collections import defaultdict
from fractions import Fraction as Fr
from itertools import product

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.protocols import graphs
from simfl.protocols.graph_design import Failure, failure
from tests.sizes import examples

# --- SecAgg+: every placement of colluding and lost users -------------------------------------------
CORRUPT, GONE = 1, 2


def ring(n, k):
    return nx.hkn_harary_graph(k, n) if k < n - 1 else nx.complete_graph(n)


def long_gaps(n, h, left):
    """How many gaps between those left on the ring hold at least h users."""
    left = sorted(left)
    return sum((b - a - 1) % n >= h for a, b in zip(left, left[1:] + left[:1], strict=True))


def placements(n, k, states):
    """Every placement on a ring of n, as (T, D) and what it comes to.

    colluding: of each honest user, how many neighbours collude; alive: of each user, how many of its
    closed neighbourhood are left; apart: whether who is honest and left is disconnected; pairs: of long gaps.
    """
    G, connected = ring(n, k), {}
    for state in product(states, repeat=n):
        corrupt, gone = ({v for v in G if state[v] & bit} for bit in (CORRUPT, GONE))
        left = frozenset(G) - corrupt - gone
        if left not in connected:
            connected[left] = not left or nx.is_connected(G.subgraph(left))
        colluding = [len(corrupt & set(G[v])) for v in G if v not in corrupt]
        alive = [len(({v} | set(G[v])) - gone) for v in G]
        pairs = math.comb(long_gaps(n, k // 2, left), 2)
        yield (len(corrupt), len(gone)), (colluding, alive, not connected[left], pairs)


def frequencies(outcomes, t):
    """How often not E1 or not E2, and how often not E3."""
    insecure = sum(max(colluding, default=0) >= t or apart for colluding, _, apart, _ in outcomes)
    incorrect = sum(min(alive) < t for _, alive, _, _ in outcomes)
    return insecure / len(outcomes), incorrect / len(outcomes)


@pytest.mark.ci
@pytest.mark.parametrize("n", [5, 6, 7])
def test_the_bounds_are_the_expected_number_of_failures(n):
    """Over all placements of so many, none both: n times the part of the honest who have t or more colluding
    neighbours, pairs of long gaps, users with fewer than t shares left. The bound is not less, and not more
    either if k or n is even and it still grows with how many are gone."""
    for k in range(2, n):
        groups = defaultdict(list)
        for counts, outcome in placements(n, k, (0, CORRUPT, GONE)):
            groups[counts].append(outcome)
        for (T, D), outcomes in groups.items():
            honest, left, N = n - T, n - T - D, len(outcomes)
            cut = sum(pairs for _, _, _, pairs in outcomes) / N if k <= T + D else 0
            exact = n * k % 2 == 0 and honest and k // 2 * (left + 1) > T + D
            for t in range(1, k + 3):
                second = sum(c >= t for colluding, _, _, _ in outcomes for c in colluding) / N
                second *= n / max(honest, 1)
                short = sum(a < t for _, alive, _, _ in outcomes for a in alive) / N
                told, least = failure(n, k, t, T, D), Failure(min(1, second + cut), min(1, short))
                assert told.insecure >= least.insecure - 1e-12, (k, t, T, D)
                assert told.incorrect >= least.incorrect - 1e-12, (k, t, T, D)
                if exact:
                    assert told.insecure == pytest.approx(least.insecure, abs=1e-12), (k, t, T, D)
                    assert told.incorrect == pytest.approx(least.incorrect, abs=1e-12), (k, t, T, D)


@pytest.mark.ci(but=["5-True"])
@pytest.mark.parametrize(("n", "overlap"), [(5, True), (6, True), (7, False)])
def test_the_bounds_hold_of_fewer_and_of_lost_colluders(n, overlap):
    """T and D are the most: no smaller sets, and no overlap of the two, fail more often than they allow."""
    for k in range(2, n):
        groups = defaultdict(list)
        for counts, outcome in placements(n, k, (0, CORRUPT, GONE, CORRUPT | GONE)[: 3 + overlap]):
            groups[counts].append(outcome)
        for t in range(1, k + 3):
            happens = {counts: frequencies(outcomes, t) for counts, outcomes in groups.items()}
            for T, D in groups:
                told = failure(n, k, t, T, D)
                for (fewer, less), (insecure, incorrect) in happens.items():
                    if fewer <= T and less <= D:
                        assert told.insecure >= insecure - 1e-12, (n, k, t, T, D, fewer, less)
                        assert told.incorrect >= incorrect - 1e-12, (n, k, t, T, D, fewer, less)


def test_one_long_gap_disconnects_nothing():
    """Two neighbouring users are lost from a ring of degree 4: every other pair still hangs together."""
    assert failure(9, 4, 2, T=0, D=3).insecure == 0
    assert failure(9, 4, 2, T=0, D=4).insecure > 0
    assert nx.is_connected(ring(9, 4).subgraph(range(3, 9)))


def test_the_tails_are_exact_for_many_users():
    n, k, t, T, D = 60, 12, 7, 15, 20

    def drawn(K, low, high):
        return sum(
            Fr(math.comb(K, x) * math.comb(n - 1 - K, k - x), math.comb(n - 1, k)) for x in range(low, high)
        )

    second = n * drawn(T, t, k + 1)
    short = (n - D) * drawn(D, k + 2 - t, k + 1) + D * drawn(D - 1, k + 1 - t, k + 1)
    left = n - T - D
    cut = Fr(math.comb(left, 2) * math.comb(n - 1 - k, left - 1), math.comb(n - 1, left - 1))
    told = failure(n, k, t, T, D)
    assert told.insecure == pytest.approx(min(1.0, float(second + cut)), rel=1e-9)
    assert told.incorrect == pytest.approx(min(1.0, float(short)), rel=1e-9)


def test_random_graph_fails_within_the_bounds():
    """The graphs that are really used. Rare events hardly overlap, so their expected number is near the
    frequency; with these seeds the test fails by chance with probability below 1e-6 (5 standard errors)."""
    n, k, t, T, D, rounds = 24, 6, 4, 6, 6, 1500
    told, short, second = failure(n, k, t, T, D), 0, 0
    corrupt, gone = set(range(T)), set(range(T, T + D))
    for s in range(rounds):
        graph = graphs.harary(range(n), k, s.to_bytes(32, "big"))
        short += any(len(set(closed) - gone) < t for closed in graph.values())
        second += any(len(corrupt & set(closed)) >= t for i, closed in graph.items() if i not in corrupt)
    slack = 5 * math.sqrt(0.25 / rounds)
    assert 0.3 * told.incorrect - slack < short / rounds < told.incorrect + slack
    assert 0.3 * told.insecure - slack < second / rounds < told.insecure + slack


@given(st.integers(2, 40), st.data())
@settings(max_examples=examples(200), deadline=None, derandomize=True)
def test_the_complete_graph_fails_never_or_surely(n, data):
    T, D = data.draw(st.integers(0, n)), data.draw(st.integers(0, n))
    t, k = data.draw(st.integers(1, n + 1)), data.draw(st.integers(n - 1, n + 3))
    secure, correct = t > min(T, n - 1), t <= n - D
    assert failure(n, k, t, T, D) == Failure(0.0 if secure else 1.0, 0.0 if correct else 1.0)
