"""Worlds of machines, what becomes of their users, and sums computed without any machine."""

from collections import Counter
from dataclasses import dataclass
from random import Random

import numpy as np

from simfl.crypto import audit, quantize
from simfl.crypto.field import Q
from simfl.protocols.base import SERVER, Params, Update
from simfl.protocols.loopback import run_round
from simfl.protocols.ops import EagerOps, Handle, ShadowOps, seed_array
from simfl.protocols.registry import PROTOCOLS
from simfl.streams import Entropy, derive

POINTS = ("advertise", "shares", "upload", "recovery")
NEVER = "never"
ORDER = {name: k for k, name in enumerate((*POINTS, NEVER))}


@dataclass
class World:
    """One round's machines, the users' updates, and where each machine's entropy comes from."""

    protocol: str
    params: Params
    ops: object
    server: object
    clients: dict
    updates: dict
    entropies: dict

    def run(self, **how):
        return run_round(self.server, self.clients, self.updates, **how)


def delta(seed, user, d, name=""):
    """A user's update, 1 x d float32, some of it beyond the clip of 1."""
    rng = np.random.default_rng([seed, user, *name.encode()])
    return rng.uniform(-1.2, 1.2, (1, d)).astype(np.float32)


def world(protocol, n, ops=None, seed=0, d=5, **params):
    """A round of n users whose weights are 1 .. n."""
    p = Params(d=d, q=Q, **params)
    ops = ops or EagerOps(p.q)
    root = derive(seed, "machines")
    entropies = {party: Entropy(root, party) for party in (SERVER, *range(n))}
    kind = PROTOCOLS[protocol]
    blind = isinstance(ops, ShadowOps)
    updates = {
        user: Update(Handle(1, d, 4, None if blind else delta(seed, user, d)), user + 1) for user in range(n)
    }
    return World(
        protocol,
        p,
        ops,
        kind.server(range(n), p, ops, entropies[SERVER]),
        {user: kind.client(user, p, ops, entropies[user]) for user in range(n)},
        updates,
        entropies,
    )


# --- what becomes of users -----------------------------------------------------------------------
def lose_at(points):
    """The fate of users that are lost when they would send the message of their point."""
    return lambda user, message: "lose" if points.get(user) == message.point else "deliver"


class Between:
    """Sits before a machine, sees each message and may change it."""

    def __init__(self, machine, change):
        self.machine = machine
        self.change = change

    def receive(self, sender, message):
        return self.machine.receive(sender, self.change(sender, message))

    def __getattr__(self, name):
        return getattr(self.machine, name)


class Slow:
    """Before a server: what `late` users send at their point comes after the deadline that waits for it."""

    def __init__(self, server, late):
        self.server = server
        self.late = late
        self.held = []

    def receive(self, sender, message):
        if self.late.get(sender) == message.point:
            self.held.append((sender, message))
            return []
        return self.server.receive(sender, message)

    def expire(self, timer):
        due = self.server.awaits(timer) or self.server.stage is None
        effects = self.server.expire(timer)
        held, self.held = (self.held, []) if due else ([], self.held)
        return [*effects, *(e for sender, message in held for e in self.server.receive(sender, message))]

    def __getattr__(self, name):
        return getattr(self.server, name)


class Watchful:
    """Before a server: it is told of a lost user before the next message."""

    def __init__(self, server, points):
        self.server = server
        self.points = points
        self.gone = []
        self.expired = []

    def fate(self, user, message):
        if self.points.get(user) != message.point:
            return "deliver"
        self.gone.append(user)
        return "lose"

    def receive(self, sender, message):
        return self._told(lambda: self.server.receive(sender, message))

    def expire(self, timer):
        if self.server.awaits(timer) and not self.gone:
            self.expired.append(timer.name)
        return self._told(lambda: self.server.expire(timer) if not self.gone else [])

    def _told(self, call):
        effects = []
        while self.gone:
            effects += self.server.gone(self.gone.pop(0))
        return [*effects, *call()]

    def __getattr__(self, name):
        return getattr(self.server, name)


# --- what must come out --------------------------------------------------------------------------
def plain_sum(w, members, weighted=True):
    """The members' quantised updates, and the sum of their weights, in integers, modulo q."""
    total = np.zeros(w.params.d + weighted, dtype=object)
    for user in members:
        weight = w.updates[user].weight if weighted else 1
        seed = seed_array(w.entropies[user].peek("quantise"))
        levels = quantize.signed_levels(w.updates[user].delta.content, w.params.clip, w.params.levels, seed)
        total += np.array([weight * int(x) for x in levels[0]] + [weight] * weighted, dtype=object)
    return [int(x) % w.params.q for x in total]


def audited(w, result):
    """(differing, wrapped, clipped) coordinates of a synchronous result."""
    users = [m.user for m in result.members]
    return audit.in_field(
        result.total.content,
        [w.updates[u].delta.content for u in users],
        [w.updates[u].weight for u in users],
        [int(m.factor) for m in result.members],
        [seed_array(w.entropies[u].peek("quantise")) for u in users],
        w.params.clip,
        w.params.levels,
        w.params.q,
    )[0].tolist()


def check_round(w, out, points, needed):
    """The law of a masked round: with enough users at each stage the exact sum of exactly those whose
    upload came in time; else no result, and the reason names the stage and both numbers.

    points: where each unlucky user is lost or late.
    """
    stage = {user: ORDER[points.get(user, NEVER)] for user in w.clients}
    for k, name in enumerate(POINTS):
        alive = [user for user in stage if stage[user] > k]
        if len(alive) < needed:
            assert out.result is None
            assert out.reason == f"{name}: {len(alive)} users answered, {needed} needed"
            return False
    counted = [user for user in sorted(stage) if stage[user] > ORDER["upload"]]
    assert out.reason is None
    assert [m.user for m in out.result.members] == counted
    assert out.result.total.content[0].tolist() == plain_sum(w, counted)
    assert audited(w, out.result)[:2] == [0, 0]
    assert not out.refused
    return True


# --- counting ------------------------------------------------------------------------------------
class Counting:
    """Counts the kernels that really ran, by name, and the rows that came out of them."""

    def __init__(self, q):
        super().__init__(q)
        self.ran = Counter()
        self.rows = Counter()

    def _run(self, kernel, shape, args):
        def counted(*contents):
            self.ran[kernel.__name__] += 1
            self.rows[kernel.__name__] += shape[0]
            return kernel(*contents)

        return super()._run(counted, shape, args)


class CountingEager(Counting, EagerOps):
    pass


class CountingShadow(Counting, ShadowOps):
    pass


class Ledger:
    """Before a machine: writes down each call's counted work, as an engine's steps do."""

    def __init__(self, machine, ops, party, steps):
        self.machine = machine
        self.ops = ops
        self.party = party
        self.steps = steps

    def __getattr__(self, name):
        found = getattr(self.machine, name)
        if name not in ("start", "receive", "submit", "expire"):
            return found

        def call(*args):
            self.ops.begin((self.party, name), "offline")
            effects = found(*args)
            work = [(s.phase, s.work) for s in self.ops.end()]
            self.steps.append((self.party, name, work))
            return effects

        return call


def work_of(steps):
    """All counted work of some steps."""
    total = Counter()
    for _, _, segments in steps:
        for _, work in segments:
            total.update(work)
    return total


# --- the asynchronous driver ---------------------------------------------------------------------
class Buffers:
    """Asynchronous machines without time: whatever can happen next may happen, drawn from one seed.

    Messages keep their order on each directed link. A user that goes offline loses what it was sending
    and training (but enrols when it is back); what is sent to it waits. The server is told of it or has
    to find out by its timers.
    """

    def __init__(self, protocol, n, seed=0, away=(), ops=None, d=5, **params):
        self.params = Params(d=d, q=Q, **params)
        self.ops = ops or EagerOps(Q)
        self.rng = Random(seed)
        self.seed = seed
        kind, root = PROTOCOLS[protocol], derive(seed, "machines")
        self.entropies = {party: Entropy(root, party) for party in (SERVER, *range(n))}
        self.server = kind.server(range(n), self.params, self.ops, self.entropies[SERVER])
        self.clients = {u: kind.client(u, self.params, self.ops, self.entropies[u]) for u in range(n)}
        self.offline = kind.offline
        self.links = {}
        self.timers = []
        self.away = set(away)
        self.told = set()
        self.trained = {}
        self.cycles = Counter()
        self.version = 0
        self.versions = {}  # the version that each update began on
        self.deltas = {}
        self.results = []
        self.aborts = []
        self.given_up = []
        self.ignored = []
        self.refused = []
        self.uploads = []  # names that reached the server
        self.carry_out(SERVER, self.server.start())

    def carry_out(self, party, effects):
        for e in effects:
            match type(e).__name__:
                case "Send":
                    self.links.setdefault((party, e.to), []).append(e.message)
                case "Timer":
                    self.timers.append(e)
                case "Ready":
                    self.train(e.about)
                case "Result":
                    self.version += 1
                    self.results.append(e)
                    self.check(e)
                case "Abort":
                    self.aborts.append(e.reason)
                case "GiveUp":
                    self.given_up.append(e.about)
                case "Ignore":
                    self.ignored.append((party, e))
                case "Refuse":
                    self.refused.append((party, e))

    # -- what can happen
    def train(self, name):
        user = int(name.split(".")[0])
        self.deltas[name] = delta(self.seed, user, self.params.d, name)
        self.trained[user] = name

    def begin(self, user):
        name = f"{user}.{self.cycles[user]}"
        self.versions[name] = self.version
        self.carry_out(SERVER, self.server.begin(user, self.cycles[user]))
        self.cycles[user] += 1
        if not self.offline:
            self.train(name)

    def submit(self, user):
        name = self.trained.pop(user)
        handle = Handle(1, self.params.d, 4, self.deltas[name])
        update = Update(handle, 1, name, self.versions[name])
        self.carry_out(user, self.clients[user].submit(update))

    def deliver(self, sender, to):
        message = self.links[sender, to].pop(0)
        if message.kind == "upload":
            self.uploads.append(message.about)
        machine = self.server if to == SERVER else self.clients[to]
        self.carry_out(to, machine.receive(sender, message))

    def expire(self, timer):
        self.timers.remove(timer)
        self.carry_out(SERVER, self.server.expire(timer))

    def leave(self, user, tell=True):
        self.away.add(user)
        up = (user, SERVER)
        self.links[up] = [m for m in self.links.get(up, []) if m.kind == "advertise"]
        self.trained.pop(user, None)
        if tell:
            self.told.add(user)
            self.carry_out(SERVER, self.server.gone(user))

    def back(self, user):
        self.away.discard(user)
        if user in self.told:
            self.told.discard(user)
            self.carry_out(SERVER, self.server.back(user))

    # -- drivers
    def free(self):
        """Users that may begin now."""
        if not self.server.open:
            return []
        here = [u for u in self.clients if u not in self.away and self.server.admits(u)]
        return [u for u in here if u not in self.trained]

    def deliverable(self):
        return [k for k, queue in self.links.items() if queue and not self.away & set(k)]

    def step(self, losses, late, keep=0):
        """One random thing that can happen; False if nothing can."""
        rng = self.rng
        if rng.random() < losses:
            here = sorted(set(self.clients) - self.away)
            if self.away and rng.random() < 0.6:
                self.back(rng.choice(sorted(self.away)))
            elif len(here) > keep:
                self.leave(rng.choice(here), tell=rng.random() < 0.7)
            return True
        if self.timers and rng.random() < late:
            self.expire(rng.choice(self.timers))
            return True
        can = [(self.deliver, k) for k in self.deliverable()]
        can += [(self.begin, (u,)) for u in self.free()]
        can += [(self.submit, (u,)) for u in self.trained if u not in self.away]
        if can:
            call, args = rng.choice(can)
            call(*args)
        elif self.timers:
            self.expire(self.timers[0])
        else:
            return False
        return True

    def play(self, steps, losses=0.0, late=0.0, keep=0):
        while steps and self.step(losses, late, keep):
            steps -= 1
        return self

    # -- the law of a result
    def check(self, result):
        p, members = self.params, result.members
        assert self.server.version >= self.version
        assert len({m.user for m in members}) == len(members) == p.K
        for m in members:
            assert m.about.startswith(f"{m.user}.")
            assert m.staleness == self.version - 1 - self.versions[m.about] <= p.staleness_bound
        deltas = [self.deltas[m.about] for m in members]
        factors = [m.factor for m in members]
        if not self.offline:
            assert factors == [p.staleness(m.staleness) for m in members]
            plain = sum(np.float64(f) * x for f, x in zip(factors, deltas, strict=True))
            np.testing.assert_allclose(result.total.content, plain, rtol=1e-12)
            assert audit.real(result.total.content, deltas, factors).tolist() == [[0, 0, 0]]
            np.testing.assert_allclose(result.mean.content, plain / sum(factors), rtol=1e-12)
            return
        seeds = [seed_array(self.entropies[m.user].peek(f"quantise{m.about}")) for m in members]
        for m in members:  # eq. 34: c_g s(tau), rounded up or down
            assert 0 <= m.factor - np.floor(p.c_g * p.staleness(m.staleness)) <= 1
        levels = [quantize.signed_levels(x, p.clip, p.levels, s) for x, s in zip(deltas, seeds, strict=True)]
        plain = [
            sum(f * int(level[0, k]) for f, level in zip(factors, levels, strict=True)) for k in range(p.d)
        ]
        assert result.total.content[0].tolist() == [x % p.q for x in plain]
        args = (deltas, [1] * p.K, factors, seeds, p.clip, p.levels, p.q)
        assert audit.in_field(result.total.content, *args)[0].tolist()[:2] == [0, 0]
        mean = np.array(plain) / (p.levels * sum(factors))
        np.testing.assert_allclose(result.mean.content[0], mean, rtol=1e-12)
