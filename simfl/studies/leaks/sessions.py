"""Two sessions in which users have the same keys: whatever a key is used for must be of one session.

A session's number is public (`Params.session`). Keys are the secrets that key agreement was done with, in
whichever protocol; all other secrets are drawn anew.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial

from simfl.dataplane.symbolic import KEY_AGREEMENT, SymbolicOps
from simfl.dataplane.terms import Secret, Term
from simfl.random_streams import Name
from simfl.studies.leaks.views import NamedEntropy, Setup, Transcript, play, union

ANOTHER = b"another session"


class Redrawn(NamedEntropy):
    """Entropy of a second session: of `keys` the first one's, of all else its own."""

    def __init__(self, keys: Collection[Term], root: bytes, *scope: Name) -> None:
        super().__init__(root, *scope, ANOTHER.decode())
        self.keys, self.earlier = keys, NamedEntropy(root, *scope)

    def __call__(self, name: str) -> bytes:
        party, *scope = self.earlier.scope
        if Secret(int(party), name, tuple(scope)) not in self.keys:
            return super().__call__(name)
        drawn = self.earlier(name)
        self.drawn += self.earlier.drawn[-1:]
        return drawn


def keys_of(ops: SymbolicOps) -> set[Term]:
    """Return the secrets that users agreed on keys with."""
    return {secret for secret, uses in ops.purposes.items() if KEY_AGREEMENT in uses}


def second_of(setup: Setup, keys: Collection[Term]) -> tuple[Setup, partial[Redrawn]]:
    """Return the machines of a second session, and what makes its entropy."""
    return replace(setup, params=replace(setup.params, session=ANOTHER)), partial(Redrawn, keys)


def two_sessions(setup: Setup) -> Transcript | None:
    """Return two sessions as one, without losses; None where users agree on no keys."""
    ops = SymbolicOps(setup.params.q)  # one for both: a nonce must not come twice
    first = play(setup, ops=ops)
    keys = keys_of(ops)
    if not keys:
        return None
    other, draw = second_of(setup, keys)
    second = play(other, ops=ops, update="another", draw=draw)
    second.sent = [sent._replace(label="another session: ") for sent in second.sent]
    return union([first, second])
