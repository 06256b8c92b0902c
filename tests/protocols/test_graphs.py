"""simfl.protocols.graphs: the laws of a graph of neighbours, against networkx, and its randomness."""

import subprocess
import sys
from collections import Counter
from itertools import combinations

import networkx as nx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, chisquare

from simfl.protocols.graphs import complete, erdos_renyi, harary
from tests.sizes import examples

ALPHA = 1e-9
"""Each statistical check fails with this probability if the code is right; seeds are fixed, so once."""

USERS = st.lists(st.integers(-50, 10**6), unique=True, max_size=24)
SEEDS = st.binary(min_size=32, max_size=32)


def seed(number):
    return number.to_bytes(32, "big")


def as_networkx(graph):
    g = nx.Graph()
    g.add_nodes_from(graph)
    g.add_edges_from((i, j) for i, closed in graph.items() for j in closed if i != j)
    return g


def check_laws(graph, users):
    assert list(graph) == sorted(users)
    for i, closed in graph.items():
        assert isinstance(closed, tuple)
        assert list(closed) == sorted(set(closed))
        assert i in closed
        assert all(type(j) is int and i in graph[j] for j in closed)


@given(USERS, st.integers(2, 26), SEEDS)
@settings(max_examples=examples(200), deadline=None, derandomize=True)
def test_a_harary_graph_is_regular_and_k_connected(users, k, s):
    graph, n = harary(users, k, s), len(users)
    check_laws(graph, users)
    degrees = Counter(len(closed) - 1 for closed in graph.values())
    if k >= n - 1:
        assert graph == complete(users)
    elif k % 2 and n % 2:
        assert degrees == {k: n - 1, k + 1: 1}
    else:
        assert degrees == {k: n}
    if 2 <= n <= 12:
        assert nx.node_connectivity(as_networkx(graph)) == min(k, n - 1)


@given(USERS, st.floats(0, 1), SEEDS)
@settings(max_examples=examples(100), deadline=None, derandomize=True)
def test_erdos_renyi_graph_keeps_the_invariants(users, p, s):
    check_laws(erdos_renyi(users, p, s), users)
    assert all(closed == (i,) for i, closed in erdos_renyi(users, 0, s).items())
    assert erdos_renyi(users, 1, s) == erdos_renyi(users, 1.0, s) == complete(users)


@given(USERS)
@settings(deadline=None, derandomize=True)
def test_in_the_complete_graph_all_share_one_tuple(users):
    for graph in (
        complete(users),
        harary(users, max(2, len(users)), seed(0)),
        erdos_renyi(users, 1, seed(0)),
    ):
        check_laws(graph, users)
        assert len({id(closed) for closed in graph.values()}) <= 1
        assert all(set(closed) == set(users) for closed in graph.values())


@given(st.permutations(range(3, 20)), SEEDS, SEEDS)
@settings(max_examples=examples(50), deadline=None, derandomize=True)
def test_the_seed_and_the_set_of_users_decide_not_their_order(users, s, other):
    assume(s != other)
    for make in (lambda u, s: harary(u, 4, s), lambda u, s: erdos_renyi(u, 0.5, s)):
        assert make(users, s) == make(sorted(users), s)
        assert make(users, s) != make(users, other)


def test_graphs_equal_the_stored_ones():
    """Golden: scenarios replay only if a seed gives the same graph on every machine."""
    assert harary(range(10, 16), 3, seed(7)) == {
        10: (10, 11, 13, 14),
        11: (10, 11, 12, 15),
        12: (11, 12, 13, 14),
        13: (10, 12, 13, 15),
        14: (10, 12, 14, 15),
        15: (11, 13, 14, 15),
    }
    assert erdos_renyi(range(10, 15), 0.5, seed(7)) == {
        10: (10, 11, 12, 13, 14),
        11: (10, 11, 12, 14),
        12: (10, 11, 12, 14),
        13: (10, 13),
        14: (10, 11, 12, 14),
    }


def test_every_ring_is_equally_likely():
    """Over 6 users there are 5!/2 = 60 rings. Not only are all of them met: their counts are uniform."""
    rings = Counter(tuple(harary(range(6), 2, seed(s)).values()) for s in range(3000))
    assert len(rings) == 60
    assert chisquare(list(rings.values())).pvalue > ALPHA


@pytest.mark.parametrize(("n", "k"), [(8, 3), (7, 3), (9, 4)])
def test_every_pair_is_joined_equally_often(n, k):
    """Bell's bounds take a user's neighbours for a random subset of the others."""
    rounds = 800
    pairs = Counter(
        (i, j) for s in range(rounds) for i, c in harary(range(n), k, seed(s)).items() for j in c if i < j
    )
    edges = (n * k + 1) // 2
    for pair in combinations(range(n), 2):
        joined = binomtest(pairs[pair], rounds, 2 * edges / (n * (n - 1)))
        assert joined.pvalue > ALPHA, pair


@pytest.mark.ci
@pytest.mark.parametrize("p", [0.05, 0.5, 0.8])
def test_edges_come_with_probability_p_each_on_its_own(p):
    rounds, counts, both = 1500, Counter(), Counter()
    for s in range(rounds):
        graph = erdos_renyi(range(5), p, seed(s))
        edges = [(i, j) for i, closed in graph.items() for j in closed if i < j]
        counts.update(edges)
        both.update(combinations(edges, 2))
    pairs = list(combinations(range(5), 2))
    assert all(binomtest(counts[e], rounds, p).pvalue > ALPHA for e in pairs)
    assert all(binomtest(both[ef], rounds, p * p).pvalue > ALPHA for ef in combinations(pairs, 2))


def test_edges_of_a_larger_graph_come_with_probability_p():
    n, p = 300, 0.3327
    edges = sum(len(closed) - 1 for closed in erdos_renyi(range(n), p, seed(1)).values()) // 2
    assert binomtest(edges, n * (n - 1) // 2, p).pvalue > ALPHA


@pytest.mark.parametrize("k", [1, 0, -3])
def test_a_degree_below_two_is_refused(k):
    with pytest.raises(ValueError, match=f"k={k} must be at least 2"):
        harary(range(5), k, seed(0))


@pytest.mark.parametrize("p", [-0.1, 1.5, float("nan")])
def test_value_outside_0_1_is_no_probability(p):
    with pytest.raises(ValueError, match=f"p={p} must be at least 0 and at most 1"):
        erdos_renyi(range(5), p, seed(0))


def test_two_users_need_no_ring():
    assert harary([4, 9], 1, seed(0)) == complete([9, 4])
    assert harary([], 2, seed(0)) == {}


@pytest.mark.ci
def test_networkx_and_scipy_are_imported_on_first_use_only():
    heavy = "{'networkx', 'scipy'} & set(sys.modules)"
    code = f"import sys, simfl.protocols.graph_design, simfl.protocols.graphs; assert not {heavy}, {heavy}"
    subprocess.run([sys.executable, "-c", code], check=True)
