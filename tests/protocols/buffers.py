"""Asynchronous machines, driven without time, and the law of what comes out of them."""

from collections import Counter
from random import Random

import numpy as np

from simfl.crypto import quantize
from simfl.crypto.field import Q
from simfl.dataplane import audit
from simfl.dataplane.eager import EagerOps
from simfl.dataplane.handles import Handle
from simfl.dataplane.ops import seed_array
from simfl.protocols.machine import SERVER, Params, Update
from simfl.protocols.registry import PROTOCOLS
from simfl.random_streams import Entropy, derive
from tests.protocols.harness import delta


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
        kind, root = PROTOCOLS[protocol](), derive(seed, "machines")
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
        self.discarded = []
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
                case "Discard":
                    self.discarded.append(e)
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


# --- step by step ------------------------------------------------------------------------------
def enrolled(n=5, seed=0, **params):
    """Users that know each other, nothing begun."""
    machines = {"K": 2, "U": 3, "T": 1, "staleness_bound": 2, **params}
    run = Buffers("lightsecagg_async", n, seed=seed, **machines)
    settle(run)
    return run


def settle(run, stop=lambda message: False):
    """Deliver what is on its way, except what `stop` holds back."""
    while can := [k for k in run.deliverable() if not stop(run.links[k][0])]:
        run.deliver(*can[0])


def cycle(run, *users):
    """Begin, train and upload, with everything delivered in between."""
    for user in users:
        run.begin(user)
        settle(run)
        run.submit(user)


def asked(run):
    """A recovery of 0.0 and 1.0 whose requests are at the head of the users' links."""
    cycle(run, 0, 1)
    settle(run, stop=lambda m: m.kind == "recover")
    return run.links[SERVER, 2][0]
