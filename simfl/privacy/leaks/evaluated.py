"""Terms evaluated with the real entropy: what a symbolic run says that the real one's bytes are.

A proof reckons with what symbols mean. That they mean what the kernels do is compared here, row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from simfl.crypto import keys, prg, quantize, shamir, signatures
from simfl.dataplane.eager import EagerOps
from simfl.dataplane.handles import F32, U8, U32, DType, Handle
from simfl.dataplane.ops import Ops, seed_array
from simfl.dataplane.symbolic import SymbolicOps
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
    Term,
    Value,
    VerificationKey,
)
from simfl.privacy.leaks.views import Fate, NamedEntropy, Setup, values
from simfl.protocols.loopback import LoopbackRound, run_round
from simfl.protocols.machine import Update
from simfl.random_streams import Entropy, Streams

LIMBS = 9


class Evaluated:
    """The bytes of terms.

    Args:
        secrets: a `Secret` -> its 32 bytes.
        updates: (user, update) -> its vector, quantised where its protocol does that.
    """

    def __init__(self, secrets: Callable[[Secret], bytes], updates: Mapping[tuple[int, Any], Any]) -> None:
        self.secrets, self.updates = secrets, updates
        self.bytes, self.number, self.stream = cache(self._bytes), cache(self._number), cache(self._stream)

    def row(self, items: Sequence[Any], dtype: DType) -> bytes:
        """Return a row of a handle, as bytes."""
        if dtype.kind == "f":
            return np.array([self.real(item) for item in items], dtype).tobytes()
        if dtype == U32:
            return np.array([self.form(item, None) for item in items], dtype).tobytes()
        return b"".join(self.share(item) if isinstance(item, Form) else self.bytes(item) for item in items)

    def share(self, form: Form) -> bytes:
        return np.array([self.form(form, limb) for limb in range(LIMBS)], "<u4").tobytes()

    def form(self, form: Form, limb: int | None) -> int:
        return int(sum(c * self.number(symbol, limb) for symbol, c in form.of.items()) % form.q)

    def real(self, item: Any) -> Any:
        """Return a sum in float64, added in its own order; or a coordinate as it is."""
        if isinstance(item, Form):
            return sum(float(c) * float(self.real(symbol)) for symbol, c in item.of.items())
        return self.updates[item.user, item.update][item.k]

    def _number(self, symbol: Term, limb: int | None) -> int:
        if isinstance(symbol, Coordinate):
            return int(self.updates[symbol.user, symbol.update][symbol.k])
        if isinstance(symbol, Value):
            assert limb is not None
            return shamir.limbs(self.bytes(symbol.secret))[limb]
        assert isinstance(symbol, Element)
        at = symbol.k if limb is None else symbol.k * LIMBS + limb
        return int(self.stream(symbol.seed, symbol.q)[at])

    def _stream(self, seed: Term, q: int) -> Any:
        return prg.expand(seed_array(self.bytes(seed)), 256, q)[0]

    def _bytes(self, term: Any) -> bytes:
        if isinstance(term, Secret):
            return self.secrets(term)
        if isinstance(term, Constant):
            return term.value
        if isinstance(term, VerificationKey):
            return signatures.public(seed_array(self.bytes(term.secret))).tobytes()
        if isinstance(term, Signed):
            rows = b"".join(map(self.bytes, term.rows))
            return signatures.sign(seed_array(self.bytes(term.secret)), term.message + rows).tobytes()
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


def round_of(
    setup: Setup, ops: Ops, entropy: type[Entropy], delta: Callable[[int], Any], fate: Fate
) -> tuple[LoopbackRound, dict[int, Any]]:
    """Return a round whose updates are `delta(user)`, with operations and entropy of either kind, and its
    sources of entropy."""
    server, clients, entropies = setup.machines(ops, entropy, 0)
    updates = {u: Update(Handle(1, setup.params.d, F32, delta(u)), u + 1) for u in setup.users}
    return run_round(server, clients, updates, fate, setup.kind.offline), entropies


def differences(
    setups: tuple[Setup, Setup],
    fate: Fate = lambda user, message: "deliver",
    compared: Callable[[], None] = lambda: None,
) -> Iterator[str]:
    """Play a round with content and on symbols; yield where a message or the total is not what symbols say.

    setups: one for each, as a directory of long-term keys keeps what it was asked for. compared: called for
    each row that is the same.
    """
    with_content, with_terms = setups
    p, users = with_terms.params, with_terms.users
    rng = Streams(0).rng("evaluated updates")
    deltas = {u: rng.uniform(-1, 1, (1, p.d)).astype(np.float32) for u in users}
    unknown = {u: [tuple(Coordinate(u, 0, k) for k in range(p.d))] for u in users}
    vectors: dict[tuple[int, Any], Any] = {(u, 0): deltas[u][0] for u in users}

    def quantised(kernel: Any, args: Any, result: Any) -> None:
        if kernel is quantize.quantise:
            vectors.update({(u, 0): result[0] for u in users if args[0] is deltas[u]})

    ops = EagerOps(p.q, oracle=quantised)
    real, entropies = round_of(with_content, ops, Entropy, deltas.__getitem__, fate)
    symbolic, _ = round_of(with_terms, SymbolicOps(p.q), NamedEntropy, unknown.__getitem__, fate)
    evaluated = Evaluated(lambda secret: entropies[secret.party].peek(secret.name), vectors)
    if len(real.sent) != len(symbolic.sent) or real.aborts != symbolic.aborts:
        yield f"a round with content ends otherwise than on symbols: {real.aborts} and {symbolic.aborts}"
        return
    for (_, _, message), (_, _, terms) in zip(real.sent, symbolic.sent, strict=True):
        for name, handle in values(message):
            other = getattr(terms, name)
            if not isinstance(handle, Handle):
                if handle != other:
                    yield f"{message.kind} has {name}={handle}, and on symbols {other}"
                continue
            for k, (row, items) in enumerate(zip(handle.content, other.content, strict=True)):
                if np.asarray(row).tobytes() == evaluated.row(items, handle.dtype):
                    compared()
                else:
                    yield f"row {k} of {name} in {message.kind} is not what its symbols say"
    if real.result is not None and symbolic.result is not None:
        total = symbolic.result.total.content[0]
        if real.result.total.content[0].tobytes() != evaluated.row(total, real.result.total.dtype):
            yield "the total is not what its symbols say"
