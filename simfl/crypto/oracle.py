"""Coding, decoding and Shamir's sharing compared with galois, whose field arithmetic shares no code with
ours.

Encoding and sharing evaluate polynomials: galois evaluates them again. Decoding interpolates: a result is
right if and only if galois, evaluating it, gets the rows that were decoded. Reconstruction is computed again.
Galois is slow, so of a large operation only some columns (or secrets) are compared, for about `LIMIT`
multiplications. They are the first, the last, and others drawn by the result's content, so that each
operation is compared at other ones.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any
from zlib import crc32

import numpy as np

from simfl.crypto import A8, A32, mds, ntt, shamir
from simfl.crypto.field import matmul
from simfl.crypto.row_routing import Rows

LIMIT = 1 << 16
"""Multiplications of galois for an operation, which take about 30 ms."""


class Differs(ValueError):
    """Galois has another result than our kernels."""


def check(kernel: Callable[..., Any], args: Sequence[Any], result: Any) -> None:
    """Compare the result of a kernel of `mds` or `shamir`; other kernels are not compared.

    Args:
        kernel: The kernel.
        args: Its arguments.
        result: Its result.

    Raises:
        Differs: The result is wrong.
    """
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


def _encoded(coefficients: A32, points: Sequence[int], q: int, values: A32, label: str) -> None:
    """Compare values [n, m] with the values of polynomials, whose coefficients are the columns of [U, m]."""
    U, m = coefficients.shape
    columns = _sample(m, len(points) * U, values)
    _same(_values(coefficients[:, columns], points, q), np.asarray(values)[:, columns], columns, label)


def _decoded(rows: Rows, points: Sequence[int], U: int, T: int, d: int, q: int, mask: A32) -> None:
    """Compare the polynomials through all rows: they begin with the sub-masks, and have the rows' values."""
    received, m = np.asarray(rows), mds.share_length(d, U, T)
    # The polynomials come from our own interpolation and product, which may be wrong. They are trusted only
    # if galois evaluates them to the received rows: U values determine U coefficients.
    columns = _sample(m, U * U, mask)
    polynomials = matmul(mds.interpolation(points, U, q), received[:, columns], q)
    sub_masks = np.zeros((U - T, m), np.uint32)
    sub_masks.reshape(-1)[:d] = mask[0]
    # Beyond d is the padding, which decoding has removed.
    is_mask = np.arange((U - T) * m).reshape(U - T, m)[:, columns] < d
    _same(polynomials[: U - T] * is_mask, sub_masks[:, columns], columns, "decoding")
    _same(_values(polynomials, points, q), received[:, columns], columns, "decoding")


def _reconstructed(rows: Sequence[A8], held: shamir.Held, points: Sequence[int], secrets: Any) -> None:
    """Compare each secret with the value at 0 of the polynomials through its shares (Lagrange)."""
    field = _field(shamir.P)
    for k in _sample(len(held), max(len(users) for users, _ in held) ** 2, secrets):
        users, which = held[k]
        shares = np.array([rows[u][i] for u, i in zip(users, which, strict=True)]).view("<u4")
        x = field(np.asarray(points)[users].astype(object))
        # The identity puts 1 on the diagonal, where x_i - x_i = 0 must not enter a product.
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
    """Return galois' F_q, after its answers on the prime and its generator were compared with ours."""
    import galois

    if not galois.is_prime(q):
        raise Differs(f"audit: by galois q={q} is not prime")
    # By Python's integers: products of two elements near 2^32 do not fit 64 signed bits.
    field = galois.GF(q, compile="python-calculate")
    # Users' points are powers of this generator (`ntt.point`), so a wrong one would be wrong in every share.
    if ntt.order(q) and int(field.primitive_element) != ntt.generator(q):
        raise Differs(f"audit: by galois the generator of q={q} is {field.primitive_element}")
    return field


def _sample(count: int, cost: int, result: Any) -> list[int]:
    """Return the indices of the columns or secrets that are compared, out of `count`, at `cost` products
    each."""
    # The first and the last are always compared: the padding of a mask is in the last columns.
    compared = max(2, LIMIT // cost)
    if count <= compared:
        return list(range(count))
    # A separate generator, seeded by the result: an audited run draws as any other does, and the same run
    # compares the same columns (test_oracle.py: test_the_sample_moves_with_the_content).
    rng = np.random.Generator(np.random.Philox(crc32(result[0].tobytes())))
    inner = rng.choice(count - 2, compared - 2, replace=False) + 1
    return [0, *sorted(inner.tolist()), count - 1]


def _same(expected: Any, got: Any, columns: Sequence[int], label: str) -> None:
    """Compare galois' values [n, k] with ours; `columns` are the columns' numbers."""
    wrong = np.argwhere(np.asarray(expected).astype(np.int64) != np.asarray(got).astype(np.int64))
    if len(wrong):
        row, column = wrong[0]
        raise Differs(
            f"audit: {label}: galois has {int(expected[row, column])} and not {int(got[row, column])} in row "
            f"{row}, column {columns[column]}"
        )
