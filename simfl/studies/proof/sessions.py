"""Two sessions in which users have the same keys: each use of a key must be bound to one session.

A session's name is public (`Params.session`). Keys are the secrets that users agree on keys with, under any
protocol. All other secrets are drawn anew.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from simfl.dataplane.symbolic import KEY_AGREEMENT, SymbolicOps
from simfl.dataplane.terms import Secret, Term
from simfl.privacy.leaks.views import NamedEntropy, Transcript, union
from simfl.protocols.machine import SERVER
from simfl.random_streams import Name
from simfl.studies.proof.cases import Small, SmallBuffer

ANOTHER = b"another session"


class Redrawn(NamedEntropy):
    """Entropy of a second session: the first session's for `keys`, its own for all else.

    The server is the adversary: it draws the same as before, such as a graph.
    """

    def __init__(self, keys: Collection[Term], root: bytes, *scope: Name) -> None:
        # Another scope: each name then gives another secret than in the first session.
        super().__init__(root, *scope, ANOTHER.decode())
        self.keys, self.earlier = keys, NamedEntropy(root, *scope)

    def __call__(self, name: str) -> bytes:
        party, *scope = self.earlier.scope
        # Which secrets were used for key agreement is known from the first session, under any protocol's
        # names.
        if party != SERVER and Secret(int(party), name, tuple(scope)) not in self.keys:
            return super().__call__(name)
        drawn = self.earlier(name)
        # This party drew it in this session too, so it is among what a colluder knows.
        self.drawn += self.earlier.drawn[-1:]
        return drawn


def keys_of(ops: SymbolicOps) -> set[Term]:
    """Return the secrets that users agreed on keys with."""
    return {secret for secret, uses in ops.purposes.items() if KEY_AGREEMENT in uses}


def two_sessions(small: Small | SmallBuffer) -> Transcript | None:
    """Return two sessions without losses as one transcript; None where users agree on no keys."""
    # The same operations for both sessions: they note a nonce that both use.
    ops = SymbolicOps(small.cohort.scenario.params(small.cohort.protocol, 1).q)
    first = small.session(ops)
    keys = keys_of(ops)
    if not keys:
        return None
    second = small.session(ops, partial(Redrawn, keys), ANOTHER)
    second.sent = [sent._replace(label=f"another session: {sent.label}") for sent in second.sent]
    return union([first, second])
