"""simfl.protocols.graphs: the two theorems against their definitions and against linear algebra."""

from collections import Counter
from itertools import combinations, product

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.protocols.graphs import Evolution, complete
from tests.sizes import examples

LOST, SHARED, UPLOADED, ANSWERED = range(4)
"""How far a user came: beyond V1, into V2, V3 or V4."""


def evolution(n, edges, levels, t):
    closed = {i: tuple(j for j in range(n) if i == j or {i, j} in edges) for i in range(n)}
    at_least = [frozenset(i for i in range(n) if levels[i] >= level) for level in range(4)]
    return Evolution(closed, dict(enumerate(t)), *at_least)


def edge_sets(n):
    pairs = [{i, j} for i, j in combinations(range(n), 2)]
    return [
        [e for e, there in zip(pairs, mask, strict=True) if there]
        for mask in product((0, 1), repeat=len(pairs))
    ]


# --- the definitions, literally -------------------------------------------------------------------
def by_definition(n, edges, levels, t):
    """(informative, V3_plus, reliable, private) as the paper writes them."""
    G = nx.Graph()
    G.add_nodes_from(range(n))
    G.add_edges_from(map(tuple, edges))
    V2, V3, V4 = ({i for i in G if levels[i] >= level} for level in (SHARED, UPLOADED, ANSWERED))
    informative = {i for i in G if len((set(G.adj[i]) | {i}) & V4) >= t[i]}
    V3_plus = V3 | {i for i in V2 if set(G.adj[i]) & V3}
    G3 = G.subgraph(V3)
    components = list(nx.connected_components(G3))
    in_G_C = not V3 or nx.is_connected(G3)
    in_G_NI = all(
        any(i not in informative for i in C | {i for i in V2 if set(G.adj[i]) & C}) for C in components
    )
    return informative, V3_plus, bool(V3) and V3_plus <= informative, in_G_C or in_G_NI


def check(n, edges, levels, t):
    e = evolution(n, edges, levels, t)
    informative, V3_plus, reliable, private = by_definition(n, edges, levels, t)
    assert {i for i in range(n) if e.informative(i)} == informative
    assert e.V3_plus == V3_plus
    assert (e.reliable, e.private) == (reliable, private)
    return reliable, private


def test_it_follows_the_definitions_for_three_users():
    seen = {
        check(3, edges, levels, [t] * 3)
        for edges in edge_sets(3)
        for levels in product(range(4), repeat=3)
        for t in (1, 2, 3)
    }
    assert len(seen) == 4


@st.composite
def rounds(draw):
    n = draw(st.integers(4, 9))
    pairs = [{i, j} for i, j in combinations(range(n), 2)]
    edges = draw(st.lists(st.sampled_from(pairs), max_size=n + 4))
    levels = draw(st.lists(st.sampled_from([3, 3, 3, 2, 1, 0]), min_size=n, max_size=n))
    return n, edges, levels, draw(st.lists(st.integers(1, 4), min_size=n, max_size=n))


@given(rounds())
@settings(max_examples=examples(200), deadline=None, derandomize=True)
def test_it_follows_the_definitions_for_more_users(case):
    check(*case)


# --- the theorems, as statements on spans ---------------------------------------------------------
F_Q = 10007
"""A field larger than any coefficient that elimination of masks with signs +1 and -1 can meet."""


def in_row_space(rows, targets):
    """rows [B, r, c], targets [B, m, c] over F_Q -> [B, m]: is a target a combination of its rows?

    Gaussian elimination, B systems side by side.
    """
    inverse = np.array([0, *(pow(x, -1, F_Q) for x in range(1, F_Q))])
    M = np.concatenate([rows, targets], axis=1) % F_Q
    B, r, every = len(M), rows.shape[1], np.arange(len(M))
    free = np.ones((B, r), bool)
    for c in range(M.shape[2]):
        usable = (M[:, :r, c] != 0) & free
        at, found = usable.argmax(axis=1), usable.any(axis=1)
        pivot = M[every, at] * inverse[M[every, at, c]][:, None] % F_Q
        factor = M[:, :, c] * found[:, None]
        factor[every, at] = 0
        M = (M - factor[:, :, None] * pivot[:, None, :]) % F_Q
        free[every, at] &= ~found
    return ~M[:, r:].any(axis=2)


def knowledge(n, edges, levels, t):
    """What the server knows, as rows over the symbols x_i, b_i, and a_e for each of all pairs e.

    The uploads of V3 (CCESA eq. 3). Of whom at least t_i shares came back: b_i if its upload came, and
    if not, s_i and so all its pairwise masks.
    """
    pairs = list(combinations(range(n), 2))
    rows = np.zeros((2 * n + len(pairs), 2 * n + len(pairs)), np.int64)
    for i in range(n):
        circle = [j for j in range(n) if i == j or {i, j} in edges]
        shares = sum(levels[j] == ANSWERED for j in circle)
        if levels[i] >= UPLOADED:
            rows[i, i] = rows[i, n + i] = 1
            rows[n + i, n + i] = shares >= t[i]
        for e, pair in enumerate(pairs, 2 * n):
            if i in pair and set(pair) in edges and min(levels[j] for j in pair) >= SHARED:
                if levels[i] >= UPLOADED:
                    rows[i, e] = 1 if i == pair[0] else -1
                if levels[i] == SHARED and shares >= t[i]:
                    rows[e, e] = 1
    return rows


@pytest.mark.ci
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_theorems_match_the_servers_linear_algebra(every):
    """All 64 graphs of four users, all 256 ways to be lost, thresholds at random: the sum over V3 is in the
    span if and only if `reliable`, a sum over a proper part of it if and only if not `private`. The theorems
    and the span agree everywhere, but for the empty V3, of which the span holds the empty sum."""
    n, draw = 4, np.random.default_rng(1)
    parts = np.array(list(product((False, True), repeat=n)))
    cases = [
        (n, edges, levels, draw.choice([1, 1, 1, 2, 2, 3, 4], n).tolist())
        for edges in edge_sets(n)
        for levels in product(range(4), repeat=n)
    ]
    cases = cases[::every]
    rows = np.array([knowledge(*case) for case in cases])
    targets = np.zeros((len(cases), len(parts), rows.shape[2]), np.int64)
    targets[:, :, :n] = parts
    known = in_row_space(rows, targets)
    verdicts = Counter()
    for case, told in zip(cases, known, strict=True):
        e = evolution(*case)
        V3 = np.isin(np.arange(n), list(e.V3))
        whole = (parts == V3).all(axis=1)
        proper = (parts <= V3).all(axis=1) & parts.any(axis=1) & ~whole
        assert e.reliable == (told[whole].all() and V3.any()), case
        assert e.private == (not told[proper].any()), case
        verdicts[e.reliable, e.private] += 1
    assert all(verdicts[both] > 100 / every for both in product((False, True), repeat=2)), verdicts


def test_two_pairs_of_neighbours_are_distinguished():
    """The simplest leak: 0-1 and 2-3 exchange masks, so each pair's sum comes out on its own."""
    apart = evolution(4, [{0, 1}, {2, 3}], [ANSWERED] * 4, [2] * 4)
    assert (apart.reliable, apart.private) == (True, False)
    joined = evolution(4, [{0, 1}, {1, 2}, {2, 3}], [ANSWERED] * 4, [2] * 4)
    assert (joined.reliable, joined.private) == (True, True)


def test_lost_user_still_blocks_the_sum():
    """User 2 masked with 1 and was lost; too few shares of it came back, so the mask stays on."""
    for t, reliable in ((1, True), (2, False)):
        e = evolution(3, [{0, 1}, {1, 2}], [ANSWERED, ANSWERED, SHARED], [1, 1, t])
        assert e.V3_plus == {0, 1, 2}
        assert e.reliable == reliable


def test_nothing_uploaded_is_not_reliable_but_private():
    e = evolution(3, [{0, 1}], [SHARED] * 3, [1] * 3)
    assert (e.reliable, e.private) == (False, True)


class Counted(tuple):
    """A neighbourhood that counts how often it is gone through."""

    times = 0

    def __iter__(self):
        Counted.times += 1
        return super().__iter__()


@pytest.mark.parametrize("lost", [0, 3000])
def test_the_complete_graph_is_gone_through_a_few_times_only(lost):
    graph = dict.fromkeys(range(10_000), Counted(complete(range(10_000))[0]))
    V2 = frozenset(graph)
    V3 = frozenset(range(lost, 10_000))
    e = Evolution(graph, dict.fromkeys(graph, 7000), V2, V2, V3, V3)
    Counted.times = 0
    assert e.reliable
    assert e.private
    assert all(map(e.informative, graph))
    assert Counted.times <= 4
