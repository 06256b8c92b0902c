"""The data plane: each operation states its kernel, its result's shape and its work once.

A machine never touches content. It asks its `Ops` and gets a `Handle`, whose size is known at once and
whose content is known now (`EagerOps`), later (`simfl.dataplane.pooled.PooledOps`) or never (`ShadowOps`).
One line states both the execution and the charge, so they cannot drift apart.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from simfl.crypto import A8, keys, mds, prg, quantize, shamir, signatures
from simfl.crypto import field as fq
from simfl.crypto import row_routing as relay
from simfl.crypto.keys import Octets
from simfl.crypto.short_loops import SHORT
from simfl.dataplane import audit
from simfl.dataplane.handles import F32, F64, U8, U32, DType, Handle, HandleList, Kernel, Shape
from simfl.dataplane.work import Ledger, expanding, over_rows, over_vector

Oracle = Callable[[Kernel, tuple[Any, ...], Any], None]
"""Called with each executed kernel, its arguments and its result; ValueError if the result is wrong."""


class PeerFault(Exception):
    """A peer's message is not what an honest peer sends: names the user and why.

    >>> str(PeerFault(3, "malformed"))
    'user 3: malformed'
    """

    def __init__(self, user: int, why: str) -> None:
        super().__init__(f"user {user}: {why}" if user >= 0 else f"server: {why}")
        self.user, self.why = user, why


class Trainer(Protocol):
    """Local training and evaluation, as `simfl.learning` does them."""

    d: int
    """Parameters of the model."""
    training: Any
    """The kernel of a training; it may be batched."""
    evaluates: bool
    """`evaluate` returns a result."""

    @property
    def timer(self) -> Any:
        """Timer whose `now_ns` counts CPU time, and a device's kernels where it trains on one."""
        ...

    def initial(self, seed: Any) -> Any: ...
    def evaluate(self, weights: Any) -> Any: ...
    def steps(self, user: int) -> int: ...
    def work(self, user: int, steps: int | None = None) -> dict[str, int]: ...


class Ops(Ledger, ABC):
    """The operations over F_q. Implementations override only `_run`, how a kernel is done.

    >>> from simfl.dataplane.eager import EagerOps
    >>> ops = EagerOps(q=101)
    >>> total = ops.total(ops.join([Handle(1, 2, U32, np.array([[60, 1]], np.uint32))] * 2))
    >>> total.content.tolist()  # 60 + 60 goes around 101
    [[19, 2]]
    """

    pending_bytes = 0
    events_per_slice = 100  # events between two looks at what is pending
    rounds_ahead = 0  # that the timeline is to be ahead of the round whose outcome is asked for
    executes = True  # there is content
    deferring = False  # a resumed run is in its finished rounds: operations are done if later ones need them

    def __init__(self, q: int, oracle: Oracle | None = None) -> None:
        super().__init__()
        self.q, self.oracle = q, oracle

    def _op(self, kernel: Kernel, shape: Shape, work: dict[str, int], *args: Any) -> Handle:
        self._charge(work)
        return self._run(kernel, shape, args)

    def call(self, kernel: Kernel, args: tuple[Any, ...]) -> Any:
        """Return kernel(*args); the oracle's check is not charged to the party."""
        result = kernel(*args)
        if self.oracle is not None:
            with self.uncharged():
                self.oracle(kernel, args, result)
        return result

    @abstractmethod
    def _run(self, kernel: Kernel, shape: Shape, args: tuple[Any, ...]) -> Handle:
        """Do (or promise, or only measure) `kernel(*args)`, handles standing for their content."""

    # -- rows: routing, no arithmetic
    def secret(self, entropy: bytes) -> Handle:
        """Return 32 bytes of entropy as a 1 x 32 handle."""
        return self._run(seed_array, (1, 32, U8), (entropy,))

    def pick(self, rows: Handle, at: Sequence[int]) -> Handle:
        out = self._op(relay.pick, (len(at), rows.columns, rows.dtype), {"row": len(at)}, rows, at)
        return _forged(out, (k for k, i in enumerate(at) if i in rows.forged)) if rows.forged else out

    def gather(self, rows: Sequence[Handle] | HandleList, at: Sequence[int]) -> Handle:
        """Return row at[k] of the k-th handle, for each k: how a server relays what others sent."""
        handles = rows if isinstance(rows, HandleList) else HandleList(list(rows))
        shape = (len(rows), rows[0].columns, rows[0].dtype)
        work = {"row": len(rows), "gathered_row": len(rows)}
        out = self._op(relay.gather, shape, work, handles, at)
        if handles.clean:
            return out
        return _forged(out, (k for k, (r, i) in enumerate(zip(rows, at, strict=True)) if i in r.forged))

    def join(self, rows: Sequence[Handle]) -> Handle:
        """Return all rows of all handles, one below the other."""
        n, forged = 0, list[int]()
        for r in rows:
            forged += [n + i for i in r.forged]
            n += r.rows
        shape, work = (n, rows[0].columns, rows[0].dtype), {"gathered_row": len(rows)}
        return _forged(self._op(relay.join, shape, work, list(rows)), forged)

    def parts(self, rows: Handle, which: Sequence[int], length: int) -> Handle:
        """Return of row k the elements [which[k] * length, (which[k] + 1) * length)."""
        return self._op(relay.parts, (rows.rows, length, rows.dtype), {}, rows, which, length)

    def tamper(self, rows: Handle, at: int) -> Handle:
        """Flip a bit of row `at`, as a scripted adversary does: known to the control plane."""
        out = self._op(relay.tamper, (rows.rows, rows.columns, rows.dtype), {}, rows, at)
        return _forged(out, {*rows.forged, at})

    # -- keys
    def public(self, secret: Handle) -> Handle:
        """Return the X25519 public key, 1 x 32."""
        return self._op(keys.public, (1, 32, U8), {"x25519": 1}, secret)

    def agree(self, secret: Handle, publics: Handle, info: bytes) -> Handle:
        """Return a 32-byte key per peer: HKDF-SHA256 of the X25519 agreement under `info`."""
        out = self._op(keys.agree, (publics.rows, 32, U8), {"agree": publics.rows}, secret, publics, info)
        return _forged(out, publics.forged)

    def seal(self, keys_: Handle, items: Handle, nonces: Octets, aads: Octets) -> Handle:
        """Return AES-256-GCM of row k under key k: 16 bytes longer."""
        shape = (items.rows, items.columns * items.dtype.itemsize + 16, U8)
        work = {"aead_item": items.rows, "aead_byte": items.size_bytes, **rows_apart(items)}
        out = self._op(keys.seal, shape, work, keys_, items, nonces, aads)
        return _forged(out, keys_.forged | items.forged)

    def open(
        self,
        keys_: Handle,
        sealed: Handle,
        nonces: Octets,
        aads: Octets,
        senders: Sequence[int],
        dtype: DType,
    ) -> Handle:
        """Undo `seal`; elements of this type. PeerFault, and nothing opened, if a row is forged."""
        shape = (sealed.rows, (sealed.columns - 16) // dtype.itemsize, dtype)
        work = {"aead_item": sealed.rows, "aead_byte": sealed.size_bytes, **rows_apart(sealed)}
        if forged := sealed.forged | keys_.forged:  # also finding that out is work
            self._charge(work)
            raise PeerFault(senders[min(forged)], "does not authenticate")
        return self._op(keys.open_, shape, work, keys_, sealed, nonces, aads, dtype)

    # -- signatures
    def signing_key(self, secret: Handle) -> Handle:
        """Return the Ed25519 public key, 1 x 32: it takes as long as one of X25519."""
        return self._op(signatures.public, (1, 32, U8), {"x25519": 1}, secret)

    def sign(self, secret: Handle, message: bytes, rows: Handle | None = None) -> Handle:
        """Return the Ed25519 signature of a message, and of the rows behind it, 1 x 64."""
        out = self._op(signatures.sign, (1, 64, U8), {"sign": 1}, secret, message, rows)
        return _forged(out, [0] if rows is not None and rows.forged else [])

    def verify(
        self,
        publics: Handle,
        signed: Handle,
        message: Octets,
        signers: Sequence[int],
        rows: Handle | None = None,
    ) -> Handle:
        """Return the keys of the signers, n x 32.

        Args:
            publics: Verification keys, n x 32.
            signed: Signatures, n x 64.
            message: Per signer, the signed bytes.
            signers: Users, for the error.
            rows: Rows i, n + i, ... are signed behind the i-th message.

        Raises:
            PeerFault: A signature is not its signer's, or it, its key or a row of it is forged.
        """
        n, work = publics.rows, {"verify": publics.rows}
        behind = {row % n for row in rows.forged} if rows is not None else set[int]()
        try:
            if forged := publics.forged | signed.forged | behind:
                self._charge(work)
                raise keys.Forged(min(forged), "does not verify")
            return self._op(signatures.verify, (n, 32, U8), work, publics, signed, message, rows)
        except keys.Forged as fault:
            raise PeerFault(signers[fault.row], fault.why) from None

    def share(self, secrets: Handle, seed: Handle, points: Sequence[int], t: int) -> Handle:
        """Return Shamir shares of all secrets, one row of 36 bytes a secret per point."""
        shape = (len(points), shamir.SHARE_BYTES * secrets.rows, U8)
        n = 9 * secrets.rows
        work = {"sharing": 1, "shamir_mac": n * len(points) * t, **expanding(1, n * (t - 1))}
        return self._op(shamir.share, shape, work, secrets, seed, points, t)

    def reconstruct(self, rows: Sequence[Handle], held: shamir.Held, points: Sequence[int]) -> Handle:
        """Return the secrets behind shares that users hold, k x 32: see `shamir.reconstruct_many`."""
        sizes = [len(users) for users, _ in held]
        pairs = sum(t * t for t in sizes)
        work = {"row": sum(sizes), "secret": len(held), "shamir_mac": 9 * sum(sizes), "lagrange_pair": pairs}
        if work["shamir_mac"] <= SHORT:  # numpy takes one after the other: points, weights, limbs
            work["vector"] = 3 * len(held)
        return self._op(shamir.reconstruct_many, (len(held), 32, U8), work, list(rows), held, points)

    # -- vectors over F_q
    def prg(self, seed: Handle, length: int) -> Handle:
        work = expanding(1, length) | over_vector(length, 3)
        return self._op(prg.expand, (1, length, U32), work, seed, length, self.q)

    def mask(self, x: Handle, seeds: Handle, signs: Sequence[int]) -> Handle:
        """Return x + sum of +-PRG(seed_k) (LightSecAgg eq. 1)."""
        amount = x.columns * seeds.rows
        work = {**expanding(seeds.rows, amount), "field_add": amount}
        work |= over_vector(x.columns, 2 + 8 * seeds.rows)
        return self._op(prg.mask, (1, x.columns, U32), work, x, seeds, signs, self.q)

    def add(self, a: Handle, b: Handle) -> Handle:
        work = {"field_add": a.columns, **over_vector(a.columns, 4)}
        return self._op(fq.add, (1, a.columns, U32), work, a, b, self.q)

    def sub(self, a: Handle, b: Handle) -> Handle:
        work = {"field_add": a.columns, **over_vector(a.columns, 4)}
        return self._op(fq.sub, (1, a.columns, U32), work, a, b, self.q)

    def total(self, rows: Handle) -> Handle:
        """Return the sum of the rows of one handle."""
        work = over_rows(rows.rows, rows.columns, apart=bool(rows_apart(rows)))
        return self._op(fq.weighted_sum, (1, rows.columns, U32), work, rows, None, self.q)

    def weighted_sum(self, vectors: Sequence[Handle] | Handle, weights: Sequence[int]) -> Handle:
        """Return sum_i weights[i] * vectors[i] in the field; vectors: of one row each, or the rows of one."""
        rows: Any = vectors if isinstance(vectors, Handle) else list(vectors)
        first: Handle = rows if isinstance(vectors, Handle) else rows[0]
        length, apart = first.columns, first is not rows or bool(rows_apart(first))
        work = over_rows(len(weights), length, apart)
        return self._op(fq.weighted_sum, (1, length, U32), work, rows, tuple(weights), self.q)

    def encode(self, z: Handle, seed: Handle, points: Sequence[int], U: int, T: int) -> Handle:
        """Return a mask's coded shares, one row per point (LightSecAgg eq. 5)."""
        m = mds.share_length(z.columns, U, T)
        work = {"sharing": 1, "mds_mac": len(points) * U * m, **expanding(1, T * m)}
        work["mds_element"] = len(points) * m
        work["mds_coefficient"] = mds.coefficients(len(points), U, self.q)
        return self._op(mds.encode, (len(points), m, U32), work, z, seed, points, U, T, self.q)

    def decode(self, rows: Handle, points: Sequence[int], U: int, T: int, d: int) -> Handle:
        """Return the sum of masks behind U sums of coded shares."""
        work = {"decoding": 1, "mds_mac": (U - T) * U * rows.columns, "mds_inverse": U**2}
        work["mds_element"] = (U - T) * rows.columns
        if (U - T) * U <= SHORT:  # numpy takes the points one after the other, twice
            work["vector"] = 9 * U
        return self._op(mds.decode, (1, d, U32), work, rows, points, U, T, d, self.q)

    # -- between reals and the field
    def quantise(
        self, delta: Handle, weight: int, clip: float, levels: int, seed: Handle, append_weight: bool
    ) -> Handle:
        """Return weight x the quantised update (eqs. 29-31), and the weight as one more coordinate."""
        shape = (1, delta.columns + append_weight, U32)
        # Of the keystream, quantise_element has its share.
        work = {"expansion": 1, "prg_seed": 1, "quantise_element": delta.columns}
        work |= over_vector(delta.columns, 14)
        args = (delta, weight, clip, levels, seed, self.q, append_weight)
        return self._op(quantize.quantise, shape, work, *args)

    def dequantise(self, total: Handle, levels: int, divisor: int | None) -> Handle:
        """Return the mean update of a sum; without a divisor the last coordinate is the sum of weights."""
        length = total.columns - (divisor is None)
        work = {"quantise_element": length, **over_vector(length, 5)}
        return self._op(quantize.dequantise, (1, length, F64), work, total, levels, divisor, self.q)

    def real_sum(self, vectors: Sequence[Handle], weights: Sequence[float]) -> Handle:
        """Return sum_i weights[i] * vectors[i] in float64, in the order given."""
        length = vectors[0].columns
        work = {"vector": 2 * len(vectors), "real_mac": len(vectors) * length}
        return self._op(audit.real_sum, (1, length, F64), work, list(vectors), tuple(weights))

    def divide(self, total: Handle, divisor: float) -> Handle:
        work = {"vector": 1, "real_mac": total.columns}
        return self._op(np.divide, (1, total.columns, F64), work, total, divisor)

    # -- learning
    def train(
        self, trainer: Trainer, weights: Handle, user: int, seed: Handle, index: int, steps: Any = None
    ) -> Handle:
        """Return a user's local update with the step sizes of round `index` (eqs. 24-25), 1 x d float32.

        steps: the minibatches to do, None for all; or the trainer's own cutoff, by measured time.
        """
        work = trainer.work(user, steps if isinstance(steps, int) else None)
        return self._op(trainer.training, (1, trainer.d, F32), work, weights, user, seed, index, steps)

    def scale(self, update: Handle, factor: float) -> Handle:
        """Return an update times a factor."""
        shape = (1, update.columns, update.dtype)
        return self._op(np.multiply, shape, {"vector": 1, "real_mac": update.columns}, update, factor)

    def clip(self, kernel: Kernel, update: Handle) -> Handle:
        """Return an update held within a bound."""
        shape = (1, update.columns, update.dtype)
        return self._op(kernel, shape, {"vector": 2, "real_mac": 2 * update.columns}, update)

    def apply(self, update: Kernel, weights: Handle, *args: Any) -> Handle:
        """Return the new global model, 1 x d float32 (eqs. 26, 37)."""
        work = {"vector": 4, "apply_element": weights.columns}
        return self._op(update, (1, weights.columns, F32), work, weights, *args)

    def moments(self, update: Kernel, state: Handle, *args: Any) -> Handle:
        """Return the new state of an adaptive server, 2 x d."""
        shape = (state.rows, state.columns, F64)
        work = {"vector": state.rows, "apply_element": state.rows * state.columns}
        return self._op(update, shape, work, state, *args)

    def run_uncharged(self, kernel: Kernel, shape: Shape, *args: Any) -> Handle:
        """Do the simulator's own work (audits, evaluation), charged to nobody."""
        return self._run(kernel, shape, args)

    def replace(self, handle: Handle, content: Any) -> None:
        """Give a handle that was made while `deferring` its content; with None nothing may ask for it."""

    # -- content, for the few places that need it
    async def get(self, handle: Handle) -> Any:
        """Return the content of a handle, once it is there; None when there never is any."""
        return handle.content

    async def wait_for_budget(self) -> None:
        """Wait until the pending work fits its budget again."""

    async def drain(self) -> None:
        """Wait until all work is done."""

    def raise_if_failed(self) -> None:
        """Raise the error of a kernel that failed meanwhile, if any."""

    def close(self) -> None:
        """Drop what is pending and stop the workers."""


def rows_apart(rows: Handle) -> dict[str, int]:
    """Return the work of going over rows that are kept apart, which those of a matrix are not."""
    return {"long_row": rows.rows} if rows.columns * rows.dtype.itemsize >= relay.LONG_BYTES else {}


def _forged(handle: Handle, rows: Iterable[int]) -> Handle:
    flags = frozenset(rows)
    return Handle(handle.rows, handle.columns, handle.dtype, handle.content, flags) if flags else handle


def seed_array(entropy: bytes) -> A8:
    """Return 32 bytes as the 1 x 32 array that kernels take."""
    return np.frombuffer(entropy, np.uint8).reshape(1, 32)
