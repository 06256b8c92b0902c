"""simfl.crypto.oracle: a right result passes; a wrong element anywhere, or in a drawn column, does not."""

import numpy as np
import pytest

from simfl.crypto import mds, ntt, oracle, prg, shamir
from simfl.crypto.field import Q

SEED = np.arange(32, dtype=np.uint8).reshape(1, 32)
PRIMES = [Q, ntt.Q, 2**31 - 1, 257]


def coding(q, n=8, U=5, T=2, d=26):
    """Arguments and result of every kernel that is looked at."""
    points, z = mds.points_of(tuple(range(n)), q), prg.expand(SEED, d, q)
    rows = mds.encode(z, SEED, points, U, T, q)
    who = [points[j] for j in range(n - U, n)]
    return {
        mds.encode: ((z, SEED, points, U, T, q), rows),
        mds.code: ((mds.uncoded(z, SEED, U, T, q), points, U, q), rows),
        mds.decode: ((list(rows[n - U :]), who, U, T, d, q), z.copy()),
    }


def sharing(n=9, t=4, secrets=3):
    points = range(1, n + 1)
    raw = np.arange(32 * secrets, dtype=np.uint8).reshape(secrets, 32)
    rows = shamir.share(raw, SEED, points, t)
    users = np.array([2, 8, 0, 5])
    held = [(users, np.full(4, k)) for k in range(secrets)]
    each = [row.reshape(secrets, 36) for row in rows]
    return {
        shamir.share: ((raw, SEED, points, t), rows),
        shamir.reconstruct_many: ((each, held, points), shamir.reconstruct_many(each, held, points)),
    }


CASES = [(k, args, out) for q in PRIMES for k, (args, out) in coding(q).items()]
CASES += [(k, args, out) for k, (args, out) in sharing().items()]


@pytest.mark.parametrize(("kernel", "args", "result"), CASES)
def test_one_wrong_element_of_a_small_operation_is_found(kernel, args, result):
    oracle.check(kernel, args, result)
    for at in np.random.default_rng(1).choice(result.size, min(result.size, 12), replace=False):
        wrong = result.copy()
        wrong.reshape(-1)[at] ^= 1
        with pytest.raises(
            oracle.Differs, match=r"audit: .*: galois has \d+ and not \d+ in row \d+, column \d+"
        ):
            oracle.check(kernel, args, wrong)


def test_of_a_large_operation_columns_are_drawn():
    (args, rows) = coding(Q, n=40, U=30, T=10, d=20 * 300)[mds.encode]
    oracle.check(mds.encode, args, rows)
    for wrong in (0, 299):  # the ends are always among them
        spoilt = rows.copy()
        spoilt[39, wrong] ^= 1
        with pytest.raises(oracle.Differs, match=f"coding: .* row 39, column {wrong}"):
            oracle.check(mds.encode, args, spoilt)
    spoilt = rows.copy()
    spoilt[7, 1:299] ^= 1
    with pytest.raises(oracle.Differs, match=r"coding: .* row 7, column"):
        oracle.check(mds.encode, args, spoilt)


def test_the_sample_moves_with_the_content():
    rng = np.random.default_rng(1)
    drawn = {tuple(oracle._sample(10**6, 1 << 12, rng.integers(0, Q, (1, 9)))) for _ in range(5)}
    assert len(drawn) == 5
    assert {len(at) for at in drawn} == {16}
    assert all(at[0] == 0 and at[-1] == 10**6 - 1 and len(set(at)) == 16 for at in drawn)
    assert oracle._sample(10**6, 10**9, np.ones((1, 1))) == [0, 10**6 - 1]


def test_a_number_that_is_not_prime_is_found():
    oracle._field.cache_clear()
    with pytest.raises(oracle.Differs, match="by galois q=91 is not prime"):
        oracle._field(91)


def test_other_kernels_are_let_pass():
    oracle.check(prg.expand, (SEED, 3, Q), None)
