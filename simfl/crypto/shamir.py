"""Shamir's t-of-n sharing of 32-byte secrets (Shamir 1979), as SecAgg uses it (Bonawitz 2017).

The law: any t shares give the secret, any t - 1 are independent of it. A secret is 9 limbs of 30 bits,
each the constant term of its own polynomial of degree t - 1 over F_p, p = 2^31 - 1 > 2^30. The other
coefficients are uniform over all of F_p, so secrecy is perfect; t - 1 shares fit every limb.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from simfl.crypto.field import A32, matmul
from simfl.crypto.mds import matrix
from simfl.crypto.prg import A8, expand

P = 2**31 - 1
SHARE_BYTES = 36
_LIMBS = 9
_LIMB_BITS = 30


class Inconsistent(ValueError):
    """Shares that no sharing of a 32-byte secret yields."""


def share(secrets: A8, seed: A8, points: Sequence[int], t: int) -> A8:
    """Row i of [n, 36 k] holds the shares at points[i] of all k secrets, in order; secrets [k, 32].

    A share is 9 little-endian uint32. The coefficients come from expand(seed, ...) with q = p.
    ValueError unless points are distinct and in [1, p), and 1 <= t <= n.
    """
    return share_many([secrets], seed, points, t)[0]


def share_many(secrets: Sequence[A8], seeds: A8, points: Sequence[int], t: int) -> list[A8]:
    """share(secrets[u], seeds[u : u + 1], points, t) of every user u, with one matrix product for them all.

    secrets: an array [k, 32] a user, k may differ; seeds [users, 32]. ValueError as for share, or if there is
    not one seed a user.
    """
    _check_points(points)
    if not 1 <= t <= len(points):
        raise ValueError(f"t={t} must be at least 1 and at most n={len(points)}")
    if len(seeds) != len(secrets):
        raise ValueError(f"{len(seeds)} seeds for the secrets of {len(secrets)} users")
    if not secrets:
        return []
    coefficients = [_coefficients(rows, seeds[u : u + 1], t) for u, rows in enumerate(secrets)]
    shares = matmul(matrix(points, t, P), np.hstack(coefficients), P)
    users = np.split(shares, np.cumsum([c.shape[1] for c in coefficients])[:-1], axis=1)
    return [np.ascontiguousarray(user, "<u4").view(np.uint8) for user in users]


def _coefficients(secrets: A8, seed: A8, t: int) -> A32:
    """The polynomials [t, 9 k] of one user's secrets [k, 32], constant terms first."""
    if secrets.dtype != np.uint8 or secrets.shape[1:] != (32,):
        raise ValueError(f"secrets must be uint8 [k, 32], not {secrets.dtype} {list(secrets.shape)}")
    limbs = np.array([_to_limbs(row.tobytes()) for row in secrets], np.uint32).reshape(1, -1)
    return np.vstack([limbs, expand(seed, (t - 1) * limbs.size, P).reshape(t - 1, limbs.size)])


def reconstruct(shares: A8, points: Sequence[int]) -> A8:
    """The secret [1, 32] from shares [m, 36] at `points`, by Lagrange interpolation at 0 over all m.

    ValueError unless points are distinct, in [1, p) and one a share; also if a limb is not below p, or
    if the result is no 32-byte value: "shares do not belong to one secret". Fewer than t shares, or
    altered ones, are found out so only by chance: a limb passes with probability about 1/2.
    """
    if shares.dtype != np.uint8 or shares.shape != (len(points), SHARE_BYTES):
        raise ValueError(
            f"shares must be uint8 [{len(points)}, {SHARE_BYTES}], not {shares.dtype} {list(shares.shape)}"
        )
    limbs: A32 = np.ascontiguousarray(shares).view("<u4").astype(np.uint32, copy=False)
    if (limbs >= P).any():
        raise Inconsistent(f"a share's limb is {limbs.max()}, must be below p={P}")
    weights = np.array(lagrange_at_zero(points, P), np.uint64)
    at_zero = (limbs * weights[:, None] % np.uint64(P)).sum(axis=0) % np.uint64(P)  # of at most 2^31 products
    value = sum(int(limb) << (_LIMB_BITS * i) for i, limb in enumerate(at_zero))
    if at_zero.max() >= 2**_LIMB_BITS or value >= 2**256:
        raise Inconsistent("shares do not belong to one secret")
    return np.frombuffer(value.to_bytes(32, "little"), np.uint8).reshape(1, 32).copy()


def lagrange_at_zero(points: Sequence[int], p: int) -> list[int]:
    """Weights w with f(0) = sum_i w_i f(points_i) mod p for every f of degree below len(points):
    w_i = prod_(j != i) x_j / (x_j - x_i). ValueError unless points are distinct and in [1, p)."""
    return list(_lagrange_at_zero(tuple(points), p))


@lru_cache(maxsize=256)  # a server reconstructs many secrets from one set of survivors
def _lagrange_at_zero(points: tuple[int, ...], p: int) -> tuple[int, ...]:
    _check_points(points, p)
    from simfl.crypto import loops

    x = np.array(points, np.uint64)
    others = np.empty_like(x)
    loops.other_differences(x, np.uint64(p), others)
    product = 1
    for point in points:
        product = product * point % p
    return tuple(product * pow(int(v), -1, p) % p for v in others * x % np.uint64(p))


def _to_limbs(secret: bytes) -> list[int]:
    value = int.from_bytes(secret, "little")
    return [(value >> (_LIMB_BITS * i)) & (2**_LIMB_BITS - 1) for i in range(_LIMBS)]


def _check_points(points: Sequence[int], p: int = P) -> None:
    if not points:
        raise ValueError("sharing needs at least one point")
    for point in points:
        if not 1 <= point < p:
            raise ValueError(f"point {point} must be at least 1 and below p={p}")
    if len(set(points)) != len(points):
        double = next(x for i, x in enumerate(points) if x in points[:i])
        raise ValueError(f"point {double} appears twice")
