"""CCESA's Theorem 2 is the symbolic verdict, and what is learned over rounds is the row space of P."""

from dataclasses import replace
from functools import partial
from itertools import combinations, permutations, product
from random import Random

import networkx as nx
import numpy as np
import pytest

from simfl.dataplane.terms import Coordinate
from simfl.privacy.leaks.elimination import reduced, within
from simfl.privacy.leaks.invariants import find_leak
from simfl.privacy.leaks.views import symbolic_round, union
from simfl.protocols.index_views import Users
from simfl.protocols.secagg import Ccesa
from simfl.runs.multi_round_privacy.modular import rank
from simfl.runs.multi_round_privacy.weak import weak_over_time
from simfl.studies.proof.cases import LOST, every_round
from simfl.studies.proof.patterns import make_small
from tests.docs.pages import ROOT
from tests.sizes import examples


class Over(Ccesa):
    """CCESA over a given graph."""

    edges: tuple[tuple[int, int], ...] = ()

    def graph(self, users, p, entropy):
        near = nx.Graph(self.edges)
        near.add_nodes_from(users)
        return {i: Users(sorted({i, *near.adj[i]})) for i in users}


def setup_of(users, t, edges):
    setup = make_small("ccesa", users).setup
    kind = Over(protocol="ccesa", p=1.0, t=t, edges=tuple(edges))
    return replace(setup, kind=kind, params=replace(setup.params, t=t))


def graphs(n):
    """All graphs of n users, up to isomorphism, by their edges."""
    pairs, seen = list(combinations(range(n), 2)), []
    for there in product((0, 1), repeat=len(pairs)):
        edges = tuple(edge for edge, yes in zip(pairs, there, strict=True) if yes)
        made = nx.Graph(edges)
        made.add_nodes_from(range(n))
        if not any(nx.is_isomorphic(made, other) for other in seen):
            seen.append(made)
            yield edges


def agree(seen):
    """Whether the server's verdict is the symbolic one; and that verdict."""
    private = find_leak(seen, seen.view()) is None
    return seen.verdict.private == private, private


def judged(graphs, users, t, words, most=None):
    """The number of rounds over these graphs, and of those that are not private; verdicts agree in all."""
    rounds, bare = 0, 0
    for edges in graphs:
        setup = setup_of(users, t, edges)
        for pattern, seen in every_round(partial(symbolic_round, setup), words, users, most):
            same, private = agree(seen)
            assert same, (edges, pattern, seen.verdict)
            rounds, bare = rounds + 1, bare + (not private)
    return rounds, bare


@pytest.mark.ci
@pytest.mark.parametrize("t", [2, 3])
@pytest.mark.parametrize("detect", ["told", "timeout"])
def test_theorem_2_is_the_symbolic_verdict(t, detect) -> None:
    """Of every third graph, with at most one user lost. Where the server has deadlines only, answers come
    late: the verdict is the last one."""
    rounds, bare = judged(list(graphs(4))[::-3], 4, t, LOST[detect], most=1)
    assert 0 <= bare < rounds


TOLD, TIMEOUT = LOST["told"], LOST["timeout"]
BEFORE = {"break": TOLD["break"]}
ALL = {
    (4, 2, "told"): (TOLD, 27135, 112),
    (4, 3, "told"): (TOLD, 7147, 0),
    (5, 2, "told, before sending"): (BEFORE, 39750, 194),
    (5, 3, "told, before sending"): (BEFORE, 10311, 0),
    (4, 2, "timeout"): (TIMEOUT, 20079, 56),
    (4, 3, "timeout"): (TIMEOUT, 3939, 0),
}
"""Users, t and how losses show: the losses that are tried, the rounds over all graphs up to isomorphism, and
those of them that are not private."""


@pytest.mark.slow
@pytest.mark.parametrize("case", ALL, ids=str)
def test_theorem_2_over_all_graphs_and_losses(case) -> None:
    (users, t, _), (words, *counts) = case, ALL[case]
    assert judged(graphs(users), users, t, words) == tuple(counts)


def test_the_page_has_the_counts() -> None:
    page = " ".join((ROOT / "docs" / "privacy_evidence.md").read_text().split())
    for detect in ("told", "timeout"):
        rounds = [of for (_, _, how), (_, *of) in ALL.items() if how.startswith(detect)]
        said = " of ".join(f"{n:,}" for n in (sum(bare for _, bare in rounds), sum(n for n, _ in rounds)))
        assert f"{said} rounds" in page


@pytest.mark.ci
@pytest.mark.parametrize("order", list(permutations(range(4)))[::5], ids=str)
def test_one_graph_stands_for_all_of_its_kind(order) -> None:
    """Which user has which number matters neither to how many rounds there are, nor to what they show."""
    edges = [tuple(sorted((order[a], order[b]))) for a, b in ((0, 1), (2, 3))]
    assert judged([edges], 4, 2, BEFORE) == (157, 7)


@pytest.mark.ci(but=["[6]"])
@pytest.mark.parametrize("users", [6, 7, 8])
def test_theorem_2_on_random_graphs(users) -> None:
    random, verdicts = Random(users), []
    for _ in range(examples(340)):
        t = random.choice([2, 3, 4])
        edges = [e for e in combinations(range(users), 2) if random.random() < 3 / users]
        setup = setup_of(users, t, edges)
        lost = {u: random.choice(setup.kind.points) for u in range(users) if random.random() < 0.3}
        seen = symbolic_round(setup, lambda u, m, lost=lost: "break" if lost.get(u) == m.point else "deliver")
        same, private = agree(seen)
        assert same, (edges, t, lost)
        verdicts.append(private)
    assert set(verdicts) == {True, False} or len(verdicts) < 340


# --- the same updates in several rounds ---------------------------------------------------------------
@pytest.mark.parametrize(("protocol", "changes"), [("secagg", {"t": 2}), ("lightsecagg", {"U": 3})])
@pytest.mark.parametrize("rounds", [2, 4, pytest.param(8, marks=pytest.mark.slow)])
def test_many_rounds_reveal_the_row_space_of_participation(protocol, changes, rounds) -> None:
    """Of updates that stay the same, which is the model of weak T: the rank and the lightest combination."""
    random, users, k = Random(rounds), 7, 4
    small = make_small(protocol, k, changes=changes).setup
    transcripts, matrix = [], []
    for index in range(rounds):
        chosen = tuple(sorted(random.sample(range(users), k)))
        matrix.append([int(user in chosen) for user in range(users)])
        transcripts.append(symbolic_round(replace(small, users=chosen), index=index, update=0))
    seen = union(transcripts)
    knowledge = seen.view()
    assert find_leak(seen, knowledge) is None
    first = knowledge.updates(lambda symbol: symbol.k == 0)
    rows = ({Coordinate(user, 0, 0): 1 for user in range(users) if row[user]} for row in matrix)
    space = reduced(rows, seen.q)
    assert len(first) == len(space) == rank(np.array(matrix), 2**31 - 1)
    assert all(within(line, space, seen.q) for line in first.values())
    lightest = next(
        size
        for size in range(1, users + 1)
        for some in combinations(range(users), size)
        if knowledge.updates(lambda symbol, some=some: symbol.k == 0 and symbol.user in some)
    )
    weakest = weak_over_time(np.array(matrix))[-1]
    assert weakest[0] <= lightest <= weakest[1]
