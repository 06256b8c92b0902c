"""Terms evaluated with the real entropy: what a symbolic run says that the real one's bytes are."""

from functools import cache

import numpy as np

from simfl.crypto import keys, prg, shamir, signatures
from simfl.dataplane.handles import U8, U32
from simfl.dataplane.ops import seed_array
from simfl.dataplane.terms import (
    Agreed,
    Constant,
    Coordinate,
    Element,
    Form,
    Public,
    Sealed,
    Secret,
    Signed,
    Value,
    VerificationKey,
)

LIMBS = 9


class Evaluated:
    """secrets: a `Secret` -> its 32 bytes; updates: (user, update) -> its vector, quantised
    where its protocol does that."""

    def __init__(self, secrets, updates):
        self.secrets, self.updates = secrets, updates
        self.bytes, self.number, self.stream = cache(self._bytes), cache(self._number), cache(self._stream)

    def row(self, items, dtype):
        """A row of a handle, as bytes."""
        if dtype.kind == "f":
            return np.array([self.real(item) for item in items], dtype).tobytes()
        if dtype == U32:
            return np.array([self.form(item, None) for item in items], dtype).tobytes()
        return b"".join(self.share(item) if isinstance(item, Form) else self.bytes(item) for item in items)

    def share(self, form):
        return np.array([self.form(form, limb) for limb in range(LIMBS)], "<u4").tobytes()

    def form(self, form, limb):
        return sum(c * self.number(symbol, limb) for symbol, c in form.of.items()) % form.q

    def real(self, item):
        """A sum in float64, added in its own order; or a coordinate as it is."""
        if isinstance(item, Form):
            return sum(float(c) * float(self.real(symbol)) for symbol, c in item.of.items())
        return self.updates[item.user, item.update][item.k]

    def _number(self, symbol, limb):
        if isinstance(symbol, Coordinate):
            return int(self.updates[symbol.user, symbol.update][symbol.k])
        if isinstance(symbol, Value):
            return shamir.limbs(self.bytes(symbol.secret))[limb]
        assert isinstance(symbol, Element)
        at = symbol.k if limb is None else symbol.k * LIMBS + limb
        return int(self.stream(symbol.seed, symbol.q)[at])

    def _stream(self, seed, q):
        return prg.expand(seed_array(self.bytes(seed)), 256, q)[0]

    def _bytes(self, term):
        if isinstance(term, Secret):
            return self.secrets(term)
        if isinstance(term, Constant):
            return term.value
        if isinstance(term, VerificationKey):
            return signatures.public(seed_array(self.bytes(term.secret))).tobytes()
        if isinstance(term, Signed):
            rows = b"".join(map(self.bytes, term.rows))
            return signatures.sign(seed_array(self.bytes(term.secret)), term.said + rows).tobytes()
        if isinstance(term, Public):
            return keys.public(seed_array(self.bytes(term.secret))).tobytes()
        if isinstance(term, Agreed):
            mine, theirs = (*term.between, *term.between)[:2]
            public = keys.public(seed_array(self.bytes(theirs)))
            return keys.agree(seed_array(self.bytes(mine)), public, term.info).tobytes()
        assert isinstance(term, Sealed)
        vector = isinstance(term.row[0], Form) and term.row[0].q != shamir.P
        plain = np.frombuffer(self.row(term.row, U32 if vector else U8), np.uint8)
        key = seed_array(self.bytes(term.key))
        return keys.seal(key, plain[None], [term.nonce], [term.aad])[0].tobytes()
