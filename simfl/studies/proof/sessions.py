"""Two sessions in which users have the same keys: whatever a key is used for must be of one session.

A session's number is public (`Params.session`). Keys are the secrets that key agreement was done with, in
whichever protocol; all other secrets are drawn anew.
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
    """Entropy of a second session: of `keys` the first one's, of all else its own. The server is the
    adversary, and draws what it drew before, such as a graph."""

    def __init__(self, keys: Collection[Term], root: bytes, *scope: Name) -> None:
        super().__init__(root, *scope, ANOTHER.decode())
        self.keys, self.earlier = keys, NamedEntropy(root, *scope)

    def __call__(self, name: str) -> bytes:
        party, *scope = self.earlier.scope
        if party != SERVER and Secret(int(party), name, tuple(scope)) not in self.keys:
            return super().__call__(name)
        drawn = self.earlier(name)
        self.drawn += self.earlier.drawn[-1:]
        return drawn


def keys_of(ops: SymbolicOps) -> set[Term]:
    """Return the secrets that users agreed on keys with."""
    return {secret for secret, uses in ops.purposes.items() if KEY_AGREEMENT in uses}


def two_sessions(small: Small | SmallBuffer) -> Transcript | None:
    """Return two sessions as one, without losses; None where users agree on no keys."""
    ops = SymbolicOps(small.cohort.scenario.params(small.cohort.protocol, 1).q)  # a nonce must not come twice
    first = small.session(ops)
    keys = keys_of(ops)
    if not keys:
        return None
    second = small.session(ops, partial(Redrawn, keys), ANOTHER)
    second.sent = [sent._replace(label=f"another session: {sent.label}") for sent in second.sent]
    return union([first, second])
