"""simfl.crypto.shamir against galois's polynomials; secrecy algebraically."""

from itertools import combinations

import galois
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.crypto import interpolation_loops, prg, shamir
from simfl.crypto.shamir import P
from tests.crypto.oracles import words
from tests.sizes import examples

SEED = np.arange(32, dtype=np.uint8).reshape(1, 32)
EXTREMES = np.vstack([np.zeros(32), np.full(32, 255), np.arange(32), 255 - np.arange(32)]).astype(np.uint8)


def limbs(share):
    return share.reshape(-1).view("<u4").tolist()


def reconstruct(shares, points):
    """Return the one secret whose shares these are."""
    every = np.arange(len(points))
    return shamir.reconstruct_many(list(shares[:, None]), [(every, np.zeros_like(every))], points)


def secret_limbs(secret):
    bits = "".join(f"{byte:08b}"[::-1] for byte in secret) + "0" * 14
    return [int(bits[i : i + 30][::-1], 2) for i in range(0, 270, 30)]


def part(shares, rows, k):
    return np.ascontiguousarray(shares[list(rows), 36 * k : 36 * (k + 1)])


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_any_t_or_more_shares_give_every_secret(data):
    n = data.draw(st.integers(1, 9))
    t = data.draw(st.integers(1, n))
    points = data.draw(st.lists(st.integers(1, P - 1), min_size=n, max_size=n, unique=True))
    secrets = np.vstack([EXTREMES, words(SEED, 8).view(np.uint8)])
    shares = shamir.share(secrets, SEED, points, t)
    assert shares.dtype == np.uint8
    assert shares.shape == (n, 36 * len(secrets))
    who = data.draw(st.permutations(range(n)))[: data.draw(st.integers(t, n))]
    for k, secret in enumerate(secrets):
        back = reconstruct(part(shares, who, k), [points[j] for j in who])
        assert back.dtype == np.uint8
        assert (back == secret).all()


def test_every_t_of_n():
    shares = shamir.share(EXTREMES[2:3], SEED, range(1, 8), 4)
    for who in combinations(range(7), 4):
        assert (reconstruct(part(shares, who, 0), [j + 1 for j in who]) == EXTREMES[2]).all()


def test_shares_are_evaluations_of_galois_polynomials():
    GF = galois.GF(P, compile="python-calculate")
    points, t = [5, 1, P - 1, 77], 3
    shares = shamir.share(EXTREMES[2:], SEED, points, t)
    random = prg.expand(SEED, (t - 1) * 18, P).reshape(t - 1, 18)
    constants = secret_limbs(EXTREMES[2]) + secret_limbs(EXTREMES[3])
    for limb in range(18):
        f = galois.Poly([int(c) for c in random[::-1, limb]] + [constants[limb]], field=GF)
        expected = [int(v) for v in f(GF(points))]
        assert [limbs(row)[limb] for row in shares] == expected


def test_fewer_than_t_shares_fit_every_secret():
    # Whatever limb s one wants, exactly one polynomial of degree t - 1 has f(0) = s and passes through the
    # t - 1 shares; its coefficients are as likely as the true ones, which are uniform in F_p^(t - 1).
    GF = galois.GF(P, compile="python-calculate")
    t, points = 4, [1, 2, 3]
    held = [limbs(row)[0] for row in shamir.share(EXTREMES[2:3], SEED, [1, 2, 3, 4], t)[:3]]
    for wanted in (0, 1, 2**30 - 1, 123456789):
        f = galois.lagrange_poly(GF([0, *points]), GF([wanted, *held]))
        assert f.degree <= t - 1
        assert int(f(0)) == wanted
        assert [int(f(p)) for p in points] == held
    # The map from coefficients to those shares is a bijection: points times Vandermonde, invertible.
    part = GF([[pow(p, k, P) for k in range(1, t)] for p in points])
    assert np.linalg.matrix_rank(part) == t - 1


def test_coefficients_fill_the_whole_field():
    # Secrets have 30 bits a limb, shares must have 31. 900 uniform limbs all below 2^30: probability 2^-900.
    shares = shamir.share(np.zeros((10, 32), np.uint8), SEED, range(1, 11), 2)
    values = np.array([limbs(row) for row in shares])
    assert values.max() >= 2**30
    assert values.max() < P
    # Each limb of each secret has a polynomial of its own.
    assert len(set(values[0].tolist())) == 90


def test_any_rows_are_interpolated_at_zero():
    GF = galois.GF(P, compile="python-calculate")
    for points in ([7], [1, 2], [5, P - 1, 3, 1000, P // 2]):
        values = [[3 + i, 0, 2**30 - 1, *[7] * 6] for i in range(len(points))]
        out = np.empty((1, 9), np.uint32)
        x, start = np.array(points, np.uint64), np.array([0, len(points)])
        assert interpolation_loops.interpolate(np.array(values, np.uint32), x, start, out) == 1
        for c in range(9):
            f = galois.lagrange_poly(GF(points), GF([row[c] for row in values]))
            assert out[0, c] == int(f(0))


@given(data=st.data(), n=st.integers(2, 12))
def test_many_secrets_come_from_held_rows(data, n):
    t = data.draw(st.integers(1, n))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    secrets = np.vstack([EXTREMES, rng.integers(0, 256, (3, 32), np.uint8)])
    shares = shamir.share(secrets, SEED, range(1, n + 1), t).reshape(n, -1, 36)
    order = [rng.permutation(len(secrets)) for _ in range(n)]  # of each user's rows
    held = []
    for k in range(len(secrets)):
        users = rng.permutation(n)[: int(rng.integers(t, n + 1))]
        held.append((users, np.array([int(np.flatnonzero(order[j] == k)[0]) for j in users])))
    rows = [shares[j][order[j]] for j in range(n)]
    assert (shamir.reconstruct_many(rows, held, range(1, n + 1)) == secrets).all()


def test_reconstruction_names_the_secret_that_fails():
    shares = shamir.share(EXTREMES, SEED, range(1, 5), 3).reshape(4, -1, 36).copy()
    held = [(np.array([0, 1, 3]), np.full(3, k)) for k in range(len(EXTREMES))]
    foreign = shamir.share(words(SEED, 8).view(np.uint8), SEED, range(1, 5), 3)
    for wrong in (foreign[1], np.full(36, 255, np.uint8)):
        altered = shares.copy()
        altered[1, 2] = wrong
        with pytest.raises(shamir.Inconsistent) as found:
            shamir.reconstruct_many(list(altered), held, range(1, 5))
        assert found.value.secret == 2
    shares[2, 1] = 255  # of a user who is not asked
    assert (shamir.reconstruct_many(list(shares), held, range(1, 5)) == EXTREMES).all()


def test_more_shares_than_uint64_could_add():
    points = list(range(P - 300, P))
    shares = shamir.share(EXTREMES[1:2], SEED, points, 300)
    assert (reconstruct(shares, points) == 255).all()


def test_shares_of_different_secrets_are_refused():
    # Each of 9 limbs passes with probability about 1/2 and the last (16 bits) with 2^-15: below 2^-22.
    a = shamir.share(EXTREMES[2:3], SEED, range(1, 6), 3)
    b = shamir.share(EXTREMES[2:3], words(SEED, 8).view(np.uint8), range(1, 6), 3)
    with pytest.raises(ValueError, match="do not belong to one secret"):
        reconstruct(np.vstack([a[:2], b[2:3]]), [1, 2, 3])
    with pytest.raises(ValueError, match="do not belong to one secret"):
        reconstruct(a[:2], [1, 2])  # fewer than t


@pytest.mark.parametrize("limb", [0, 8])
def test_a_result_of_other_than_32_bytes_is_refused(limb):
    fake = np.zeros((1, 9), "<u4")
    fake[0, limb] = 2**30 if limb == 0 else 2**16
    with pytest.raises(ValueError, match="do not belong to one secret"):
        reconstruct(fake.view(np.uint8), [1])
    fake[0, limb] -= 1
    value = reconstruct(fake.view(np.uint8), [1])
    assert int.from_bytes(value.tobytes(), "little") == int(fake[0, limb]) << (30 * limb)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: shamir.share(EXTREMES, SEED, [1, 2], 3), "t=3 must be at least 1 and at most n=2"),
        (lambda: shamir.share(EXTREMES, SEED, [1, 2], 0), "t=0"),
        (
            lambda: shamir.share(EXTREMES, SEED, [0, 2], 1),
            "point 0 must be at least 1 and below p=2147483647",
        ),
        (lambda: shamir.share(EXTREMES, SEED, [1, P], 1), "point 2147483647 must"),
        (lambda: shamir.share(EXTREMES, SEED, [4, 4], 1), "point 4 appears twice"),
        (lambda: shamir.share(EXTREMES, SEED, [], 1), "at least one point"),
        (lambda: shamir.share(EXTREMES[:, :31], SEED, [1], 1), "secrets must be"),
        (lambda: reconstruct(np.zeros((1, 35), np.uint8), [1]), "shares must be"),
        (lambda: reconstruct(np.zeros((2, 36), np.uint8), [3, 3]), "point 3 appears twice"),
        (lambda: reconstruct(np.full((1, 36), 255, np.uint8), [3]), "must be below p=2147483647"),
    ],
)
def test_bad_parameters_name_value_and_bound(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(("n", "t"), [(1, 1), (5, 1), (5, 5), (40, 21)])
def test_shares_are_values_of_polynomials_by_horner(n, t):
    rng = np.random.default_rng(n)
    secrets = np.vstack([EXTREMES, rng.integers(0, 256, (2, 32), dtype=np.uint8)])
    seed = rng.integers(0, 256, (1, 32), dtype=np.uint8)
    points = [int(x) for x in rng.choice(2**20, n, replace=False) + 1]
    shares = shamir.share(secrets, seed, points, t)
    assert shares.flags.c_contiguous
    constants = np.array([secret_limbs(s) for s in secrets]).reshape(1, -1)
    random = prg.expand(seed, (t - 1) * constants.size, P).reshape(t - 1, constants.size)
    polynomials = np.vstack([constants, random]).astype(object)
    for point, row in zip(points, shares, strict=True):
        value = polynomials[-1] * 0
        for coefficient in polynomials[::-1]:
            value = (value * point + coefficient) % P
        assert limbs(row) == value.tolist()
