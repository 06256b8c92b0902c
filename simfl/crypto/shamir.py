"""Secret shares: Shamir's t-of-n sharing of 32-byte secrets (Shamir 1979), as in SecAgg (Bonawitz 2017).

Invariant: any t shares give the secret, any t - 1 are independent of it. A secret is 9 limbs of 30 bits,
each the constant term of its own polynomial of degree t - 1 over F_p, p = 2^31 - 1 > 2^30. The other
coefficients are uniform over all of F_p, so secrecy is perfect; t - 1 shares fit every limb.
"""

from collections.abc import Sequence

import numpy as np

from simfl.crypto import A8, A32, I64
from simfl.crypto.field import matmul
from simfl.crypto.mds import matrix
from simfl.crypto.prg import expand
from simfl.crypto.short_loops import loops_for

P = 2**31 - 1
SHARE_BYTES = 36
_LIMBS, _LIMB_BITS = 9, 30
# Of each secret: the users that hold its shares, and each one's row in what it holds.
Held = Sequence[tuple[I64, I64]]


class Inconsistent(ValueError):
    """Shares that no sharing of a 32-byte secret yields; `secret` is which of those that were asked for."""

    def __init__(self, why: str, secret: int) -> None:
        super().__init__(why)
        self.secret = secret


def share(secrets: A8, seed: A8, points: Sequence[int], t: int) -> A8:
    """Return the shares of secrets [k, 32]: row i of [n, 36 k] holds those at points[i] of all k, in order.
    A share is 9 little-endian uint32. The coefficients come from expand(seed, ...) with q = p.
    ValueError unless points are distinct and in [1, p), and 1 <= t <= n."""
    _check(points)
    if not 1 <= t <= len(points):
        raise ValueError(f"t={t} must be at least 1 and at most n={len(points)}")
    shares = matmul(matrix(tuple(points), t, P), coefficients(secrets, seed, t), P)
    return np.ascontiguousarray(shares, "<u4").view(np.uint8)


def coefficients(secrets: A8, seed: A8, t: int) -> A32:
    """Return the polynomials [t, 9 k] of one user's secrets [k, 32], constant terms first."""
    if secrets.dtype != np.uint8 or secrets.shape[1:] != (32,):
        raise ValueError(f"secrets must be uint8 [k, 32], not {secrets.dtype} {list(secrets.shape)}")
    constants = np.array([limbs(row.tobytes()) for row in secrets], np.uint32).reshape(1, -1)
    return np.vstack([constants, expand(seed, (t - 1) * constants.size, P).reshape(t - 1, constants.size)])


def reconstruct_many(rows: Sequence[A8], held: Held, points: Sequence[int]) -> A8:
    """Return secrets [k, 32], k >= 1, by Lagrange interpolation at 0 from what users hold: rows[j] [n_j, 36]
    at points[j], of which the shares of the k-th secret are the rows held[k][1] of the users held[k][0].
    ValueError unless points are distinct and in [1, p). Inconsistent if a limb is not below p, or if the
    result is no 32-byte value: its `secret` is the first. Fewer than t shares, or altered ones, are found out
    so only by chance: a limb passes with probability about 1/2."""
    for some in rows:
        if some.dtype != np.uint8 or some.shape[1:] != (SHARE_BYTES,):
            raise ValueError(f"shares must be uint8 [n, {SHARE_BYTES}], not {some.dtype} {list(some.shape)}")
    _check(points)
    users, which = (np.concatenate(part) for part in zip(*held, strict=True))
    shares = np.concatenate(rows)[np.cumsum([0, *map(len, rows)])[users] + which]
    values = shares.view("<u4").astype(np.uint32, copy=False)
    start = np.cumsum([0, *(len(some) for some, _ in held)])
    if (values >= P).any():
        row = int((values >= P).any(axis=1).argmax())
        secret = int(np.searchsorted(start, row, "right")) - 1
        raise Inconsistent(f"a share's limb is {values[row].max()}, must be below p={P}", secret)
    x = np.array(points, np.uint64)[users]
    at_zero = np.empty((len(held), _LIMBS), np.uint32)
    loops = loops_for(values.size, "interpolation_loops")
    if (k := loops.interpolate(values, x, start, at_zero)) < len(held):
        _check(x[start[k] : start[k + 1]].tolist())
    return _from_limbs(at_zero)


def limbs(secret: bytes) -> list[int]:
    """Return a secret of 32 bytes as 9 limbs of 30 bits, the lowest first.

    >>> limbs((5 + 7 * 2**30).to_bytes(32, "little"))
    [5, 7, 0, 0, 0, 0, 0, 0, 0]
    """
    value = int.from_bytes(secret, "little")
    return [(value >> (_LIMB_BITS * i)) & (2**_LIMB_BITS - 1) for i in range(_LIMBS)]


def _from_limbs(values: A32) -> A8:
    bits = np.unpackbits(values.astype("<u4").view(np.uint8), axis=1, bitorder="little")
    bits = bits.reshape(len(values), _LIMBS, 32)
    strange = bits[:, :, _LIMB_BITS:].any(axis=(1, 2))
    bits = bits[:, :, :_LIMB_BITS].reshape(len(values), -1)
    strange |= bits[:, 256:].any(axis=1)
    if strange.any():
        raise Inconsistent("shares do not belong to one secret", int(strange.argmax()))
    return np.packbits(bits[:, :256], axis=1, bitorder="little")


def _check(points: Sequence[int]) -> None:
    if not points:
        raise ValueError("sharing needs at least one point")
    for point in (min(points), max(points)):
        if not 1 <= point < P:
            raise ValueError(f"point {point} must be at least 1 and below p={P}")
    if len(set(points)) != len(points):
        double = next(x for i, x in enumerate(points) if x in points[:i])
        raise ValueError(f"point {double} appears twice")
