"""Coding, decoding and Shamir's sharing held to galois, whose field arithmetic shares nothing with ours.

Encoding and sharing evaluate polynomials: galois evaluates them again. Decoding interpolates: the result is
right if and only if galois, evaluating it, gets back what it was found from. Reconstruction is done again.
Galois is slow, so of large operations only as many columns (or secrets) are compared as take `LIMIT`
multiplications: the first, the last, and others drawn by the result's own content.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any
from zlib import crc32

import numpy as np

from simfl.crypto import A8, A32, mds, ntt, shamir
from simfl.crypto.field import matmul
from simfl.crypto.row_routing import Rows

LIMIT = 1 << 16  # multiplications by galois for an operation: some 30 ms


class Differs(ValueError):
    """Galois finds something else than our kernels do."""


def check(kernel: Callable[..., Any], args: Sequence[Any], result: Any) -> None:
    """Compare the result of a kernel of `mds` or `shamir`; any other is let pass. Differs if it is wrong."""
    if kernel is mds.encode:
        z, seed, points, U, T, q = args
        _encoded(mds.uncoded(z, seed, U, T, q), points, q, result, "coding")
    elif kernel is mds.code:
        rows, points, _, q = args
        _encoded(rows, points, q, result, "coding")
    elif kernel is mds.decode:
        rows, points, U, T, d, q = args
        _decoded(rows, points, U, T, d, q, result)
    elif kernel is shamir.share:
        secrets, seed, points, t = args
        _encoded(shamir.coefficients(secrets, seed, t), points, shamir.P, result.view("<u4"), "sharing")
    elif kernel is shamir.reconstruct_many:
        rows, held, points = args
        _reconstructed(rows, held, points, result)


def _encoded(coefficients: A32, points: Sequence[int], q: int, values: A32, what: str) -> None:
    """Compare values [n, m] with those of the polynomials whose coefficients are the columns of [U, m]."""
    U, m = coefficients.shape
    at = _sample(m, len(points) * U, values)
    _same(_values(coefficients[:, at], points, q), np.asarray(values)[:, at], at, what)


def _decoded(rows: Rows, points: Sequence[int], U: int, T: int, d: int, q: int, mask: A32) -> None:
    """Compare the polynomials through all rows: they begin with the sub-masks, and take the rows' values."""
    received, m = np.asarray(rows), mds.share_length(d, U, T)
    at = _sample(m, U * U, mask)
    polynomials = matmul(mds.interpolation(points, U, q), received[:, at], q)
    sub_masks = np.zeros((U - T, m), np.uint32)
    sub_masks.reshape(-1)[:d] = mask[0]
    there = np.arange((U - T) * m).reshape(U - T, m)[:, at] < d  # beyond is the padding, which was cut off
    _same(polynomials[: U - T] * there, sub_masks[:, at], at, "decoding")
    _same(_values(polynomials, points, q), received[:, at], at, "decoding")


def _reconstructed(rows: Sequence[A8], held: shamir.Held, points: Sequence[int], secrets: Any) -> None:
    """Compare each secret with the value at 0 of the polynomials through its shares (Lagrange)."""
    field = _field(shamir.P)
    for k in _sample(len(held), max(len(users) for users, _ in held) ** 2, secrets):
        users, which = held[k]
        shares = np.array([rows[u][i] for u, i in zip(users, which, strict=True)]).view("<u4")
        x = field(np.asarray(points)[users].astype(object))
        differences = field(np.eye(len(x), dtype=object)) + x[None, :] - x[:, None]
        weights = np.multiply.reduce(x) / (x * np.multiply.reduce(differences, axis=1))
        limbs = [shamir.limbs(secrets[k].tobytes())]
        _same(weights[None, :] @ field(shares.astype(object)), np.array(limbs), range(9), f"secret {k}")


def _values(coefficients: A32, points: Sequence[int], q: int) -> Any:
    return _powers(tuple(points), len(coefficients), q) @ _field(q)(coefficients.astype(object))


@lru_cache(maxsize=4)
def _powers(points: tuple[int, ...], U: int, q: int) -> Any:
    x = _field(q)(np.array([int(point) % q for point in points], object))
    out = _field(q).Ones((len(points), U))
    for k in range(1, U):
        out[:, k] = out[:, k - 1] * x
    return out


@lru_cache(maxsize=4)
def _field(q: int) -> Any:
    """Return galois' F_q; its notions of a prime and of a generator are compared with ours on the way."""
    import galois

    if not galois.is_prime(q):
        raise Differs(f"audit: by galois q={q} is not prime")
    field = galois.GF(q, compile="python-calculate")
    if ntt.order(q) and int(field.primitive_element) != ntt.generator(q):
        raise Differs(f"audit: by galois the generator of q={q} is {field.primitive_element}")
    return field


def _sample(count: int, cost: int, result: Any) -> list[int]:
    """Return which of `count` columns or secrets are compared, at `cost` multiplications each."""
    most = max(2, LIMIT // cost)
    if count <= most:
        return list(range(count))
    rng = np.random.Generator(np.random.Philox(crc32(result[0].tobytes())))
    inner = rng.choice(count - 2, most - 2, replace=False) + 1
    return [0, *sorted(inner.tolist()), count - 1]


def _same(expected: Any, got: Any, at: Sequence[int], what: str) -> None:
    """Compare galois' values [n, k] with ours; `at` are the numbers of the columns."""
    wrong = np.argwhere(np.asarray(expected).astype(np.int64) != np.asarray(got).astype(np.int64))
    if len(wrong):
        row, column = wrong[0]
        raise Differs(
            f"audit: {what}: galois has {int(expected[row, column])} and not {int(got[row, column])} in row "
            f"{row}, column {at[column]}"
        )
