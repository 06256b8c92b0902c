"""Terms mean what machines compute: each row of each message, evaluated, is the real run's, bit for bit."""

from dataclasses import fields
from random import Random

import numpy as np
import pytest

from simfl.crypto import quantize
from simfl.crypto.field import Q
from simfl.dataplane.eager import EagerOps
from simfl.dataplane.handles import F32, Handle
from simfl.dataplane.ops import seed_array
from simfl.dataplane.symbolic import SymbolicOps
from simfl.dataplane.terms import REALS, Coordinate, Secret
from simfl.protocols.loopback import run_round
from simfl.protocols.machine import SERVER, Update, name_of
from simfl.protocols.registry import PROTOCOLS
from simfl.random_streams import Entropy
from simfl.studies.leaks.sweep import make_small
from simfl.studies.leaks.views import NamedEntropy
from tests.dataplane.evaluated import Evaluated
from tests.protocols.buffers import Buffers
from tests.sizes import THOROUGH

CASES = [
    ("fedavg", {}),
    ("secagg", {"t": 2}),
    ("secagg", {"t": 3, "lost_masks": "all"}),
    ("secagg_plus", {}),
    ("ccesa", {}),
    ("lightsecagg", {"U": 3}),
    ("secagg", {"t": 3, "consistency": "signatures"}),
    ("lightsecagg", {"U": 3, "consistency": "signatures", "pki": True}),
    ("lightsecagg", {"U": 4, "T": 2}),
    ("lightsecagg", {"U": 4, "T": 2, "field.q": 2147352577}),  # whose points are roots of unity
]
BUFFERED = {
    "fedbuff": {"K": 2, "staleness_bound": 2},
    "lightsecagg_async": {"K": 2, "U": 3, "T": 1, "staleness_bound": 2},
}
ROUNDS, RUNS = (200, 100) if THOROUGH else (3, 2)


def round_of(setup, ops, entropy, delta, fate):
    """A round whose updates are `delta(user)`, with operations and entropy of either kind."""
    kind, p, users = setup.kind, setup.params, setup.users
    entropies = {party: entropy(setup.root, party, 0) for party in (SERVER, *users)}
    clients = {u: kind.client(u, p, ops, entropies[u]) for u in users}
    server = kind.server(users, p, ops, entropies[SERVER])
    updates = {u: Update(Handle(1, p.d, F32, delta(u)), u + 1) for u in users}
    return run_round(server, clients, updates, fate, kind.offline), entropies, updates


def in_field(x, weight, p, rounding, weighted):
    """An update as its user masks it."""
    return quantize.quantise(x, weight, p.clip, p.levels, seed_array(rounding), p.q, weighted)[0]


def compare(real, symbolic, values):
    """The number of rows that two runs' messages have in common; they must be the same."""
    compared = 0
    assert len(real) == len(symbolic)
    for (sender, to, message), (_, _, terms) in zip(real, symbolic, strict=True):
        assert type(message) is type(terms)
        for part in fields(message):
            handle, other = getattr(message, part.name), getattr(terms, part.name)
            if not isinstance(handle, Handle):
                assert handle == other
                continue
            assert (handle.rows, handle.columns, handle.dtype) == (other.rows, other.columns, other.dtype)
            for row, items in zip(handle.content, other.content, strict=True):
                assert np.asarray(row).tobytes() == values.row(items, handle.dtype), (sender, to)
                compared += 1
    return compared


@pytest.mark.parametrize(("protocol", "changes"), CASES)
@pytest.mark.parametrize("users", [4, pytest.param(6, marks=pytest.mark.slow)])
def test_terms_of_random_rounds_are_the_real_bytes(protocol, changes, users):
    # One for each kind of content: a directory of long-term keys keeps what it was asked for.
    setup, real_setup = (make_small(protocol, users, changes=changes).setup for _ in range(2))
    p, random, rows, results = setup.params, Random(users), 0, 0
    deltas = {u: np.float32([[random.uniform(-1, 1) for _ in range(p.d)]]) for u in setup.users}
    for played in range(ROUNDS):
        lost = [u for u in setup.users if played and random.random() < 0.25]
        points = {u: random.choice(setup.kind.round_points) for u in lost}
        word = random.choice(["lose", "late", "break", "leave"])

        def fate(user, message, points=points, word=word):
            return word if points.get(user) == message.point else "deliver"

        real, entropies, _ = round_of(real_setup, EagerOps(p.q), Entropy, deltas.get, fate)
        ops = SymbolicOps(p.q)
        unknown = {u: [tuple(Coordinate(u, 0, k) for k in range(p.d))] for u in setup.users}
        symbolic, _, _ = round_of(setup, ops, NamedEntropy, unknown.get, fate)
        vectors = {
            (u, 0): in_field(deltas[u], u + 1, p, entropies[u].peek("quantise"), weighted=True)
            if setup.kind.offline
            else deltas[u][0]
            for u in setup.users
        }
        values = Evaluated(lambda s, of=entropies: of[s.party].peek(s.name), vectors)
        rows += compare(real.sent, symbolic.sent, values)
        assert real.aborts == symbolic.aborts
        assert (real.result is None) == (symbolic.result is None)
        if real.result is not None:
            total = symbolic.result.total.content[0]
            assert real.result.total.content[0].tobytes() == values.row(total, real.result.total.dtype)
            results += 1
        assert not ops.misuse
    assert rows > (10 if setup.kind.offline else 2) * ROUNDS
    assert results > 0


class Kept(Buffers):
    """A run whose messages are kept as they arrive."""

    def deliver(self, sender, to):
        self.sent.append((sender, to, self.links[sender, to][0]))
        super().deliver(sender, to)

    sent = property(lambda self: self.__dict__.setdefault("_sent", []))


class Symbolic(Kept):
    def made(self, update, version):
        row = tuple(Coordinate(update.user, str(update), k) for k in range(self.params.d))
        return Update(Handle(1, self.params.d, F32, [row]), 1, update, version)

    def check(self, result):
        for k, item in enumerate(result.total.content[0]):
            factors = {Coordinate(m.user, str(m.update), k): m.factor for m in result.members}
            assert item.of == factors


@pytest.mark.parametrize("protocol", BUFFERED)
@pytest.mark.parametrize("seed", range(RUNS))
def test_terms_of_an_asynchronous_run_are_the_real_bytes(protocol, seed, monkeypatch):
    machines = {**BUFFERED[protocol], "d": 2, "staleness": lambda tau: 1 / (1 + tau)}
    real = Kept(protocol, 4, seed, **machines).play(150, losses=0.08, late=0.05, keep=2)
    monkeypatch.setattr("tests.protocols.buffers.Entropy", NamedEntropy)
    symbolic = Symbolic(protocol, 4, seed, ops=SymbolicOps(Q), **machines)
    symbolic.play(150, losses=0.08, late=0.05, keep=2)
    p = real.params
    vectors = {
        (update.user, str(update)): in_field(
            x, 1, p, real.entropies[update.user].peek(f"quantise{name_of(update)}"), weighted=False
        )
        if real.offline
        else x[0]
        for update, x in real.deltas.items()
    }
    values = Evaluated(lambda s: real.entropies[s.party].peek(s.name), vectors)
    assert len(real.results) == len(symbolic.results)
    assert len(real.results) > 1 or seed > 1  # of many some lose every aggregate
    assert compare(real.sent, symbolic.sent, values) > (50 if real.offline else 20)
    for result, terms in zip(real.results, symbolic.results, strict=True):
        total = values.row(terms.total.content[0], result.total.dtype)
        assert result.total.content[0].tobytes() == total


def test_every_protocol_is_compared():
    assert {*PROTOCOLS} == {name for name, _ in CASES} | {*BUFFERED}


def test_a_secret_has_a_party_and_a_name():
    drawn = NamedEntropy(bytes(32), 3, 7)("mask")
    assert drawn.term is Secret(3, "mask", (7,))
    assert drawn == Entropy(bytes(32), 3, 7)("mask")
    assert REALS != Q
