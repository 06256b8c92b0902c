"""CCESA's Theorem 2 is the symbolic verdict, and what is learned over rounds is the row space of P."""

from dataclasses import replace
from itertools import combinations, product
from random import Random

import networkx as nx
import numpy as np
import pytest

from simfl.dataplane.terms import Coordinate
from simfl.privacy.modular import rank
from simfl.privacy.weak import weak_over_time
from simfl.protocols.index_views import Users
from simfl.protocols.secagg import Ccesa
from simfl.studies.leaks.cases import every_round
from simfl.studies.leaks.elimination import reduced, within
from simfl.studies.leaks.laws import beyond
from simfl.studies.leaks.sweep import make_small
from simfl.studies.leaks.views import play, union
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
    private = beyond(seen, seen.view()) is None
    return seen.verdict.private == private, private


@pytest.mark.parametrize(
    ("users", "most", "some"),
    [
        (4, 1, 3),
        pytest.param(4, None, 1, marks=pytest.mark.slow),
        pytest.param(5, None, 1, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("t", [2, 3])
@pytest.mark.parametrize("detect", ["told", "timeout"])
def test_theorem_2_is_the_symbolic_verdict(users, most, some, t, detect) -> None:
    """Of every `some`-th graph; of five users those who are lost are lost before they send. Where the server
    has deadlines only, answers come late: the verdict is the last one."""
    verdicts = []
    for edges in list(graphs(users))[::-some]:
        setup = setup_of(users, t, edges)

        def run(fate, setup=setup):
            if users < 5:
                return play(setup, fate)
            return play(setup, lambda user, m: "break" if fate(user, m) != "deliver" else "deliver")

        for pattern, seen in every_round(run, detect, users, most):
            same, private = agree(seen)
            assert same, (edges, pattern, seen.verdict)
            verdicts.append(private)
    assert True in verdicts
    assert most is not None or t > 2 or False in verdicts


@pytest.mark.parametrize("users", [6, 7, 8])
def test_theorem_2_on_random_graphs(users) -> None:
    random, verdicts = Random(users), []
    for _ in range(examples(340)):
        t = random.choice([2, 3, 4])
        edges = [e for e in combinations(range(users), 2) if random.random() < 3 / users]
        setup = setup_of(users, t, edges)
        lost = {u: random.choice(setup.kind.points) for u in range(users) if random.random() < 0.3}
        seen = play(setup, lambda u, m, lost=lost: "break" if lost.get(u) == m.point else "deliver")
        same, private = agree(seen)
        assert same, (edges, t, lost)
        verdicts.append(private)
    assert set(verdicts) == {True, False} or len(verdicts) < 340


# --- the same updates in several rounds ---------------------------------------------------------------
@pytest.mark.parametrize(("protocol", "changes"), [("secagg", {"t": 2}), ("lightsecagg", {"U": 3})])
@pytest.mark.parametrize("rounds", [2, 4, pytest.param(8, marks=pytest.mark.slow)])
def test_what_rounds_tell_is_the_row_space_of_who_took_part(protocol, changes, rounds) -> None:
    """Of updates that stay the same, which is the model of weak T: the rank and the lightest combination."""
    random, users, k = Random(rounds), 7, 4
    small = make_small(protocol, k, changes=changes).setup
    transcripts, matrix = [], []
    for index in range(rounds):
        chosen = tuple(sorted(random.sample(range(users), k)))
        matrix.append([int(user in chosen) for user in range(users)])
        transcripts.append(play(replace(small, users=chosen), index=index, update=0))
    seen = union(transcripts)
    knowledge = seen.view()
    assert beyond(seen, knowledge) is None
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
