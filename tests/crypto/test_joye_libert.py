"""Joye-Libert encryption of keys of ring-LWE: sums open exactly, and only with the sum of all keys."""

import numpy as np
import pytest

from simfl.crypto import joye_libert, rings
from simfl.crypto.field import Q
from simfl.crypto.joye_libert import MODULI, JoyeLibert
from simfl.crypto.rings import Kahe, ring_of


def scheme(bits=330, users=3, q=Q):
    kahe = Kahe(ring_of(2048, (30, 29)), 1, 1, 34, 48, 5, q, b"joye libert %d" % users)
    return JoyeLibert(kahe, bits, users)


def seeds(k):
    return np.random.default_rng(k).integers(0, 256, (2, 32), dtype=np.uint8)


def summed(how, users):
    """The ciphertext, the sum of second keys, and the sum of keys of some users."""
    c = joye_libert.protect(seeds(0), how)
    for k in range(1, users):
        c = joye_libert.add(c, joye_libert.protect(seeds(k), how), how)
    u = sum(joye_libert.key_row(seeds(k)[1:], how).astype(np.int64) for k in range(users))
    keys = sum(rings.key_of(seeds(k)[:1], how.keys)[:, 0] for k in range(users))
    return c, u, keys


@pytest.mark.parametrize(("bits", "users"), [(330, 1), (330, 3), (330, 16), (2048, 2)])
def test_a_sum_opens_with_the_sum_of_keys(bits, users):
    how = scheme(bits, users)
    c, u, keys = summed(how, users)
    # Sums of limbs do not wrap around q, so they are the same in the field.
    assert u.max() < Q
    opened = joye_libert.open_sum(c, u.astype(np.uint32), users, how)
    assert opened[0].tolist() == (keys % Q).tolist()


def test_fewer_users_than_the_most_open_too():
    how = scheme(users=8)
    c, u, keys = summed(how, 5)
    assert joye_libert.open_sum(c, u.astype(np.uint32), 5, how)[0].tolist() == (keys % Q).tolist()


def test_a_missing_key_opens_nothing():
    how = scheme()
    c, u, keys = summed(how, 3)
    less = u - joye_libert.key_row(seeds(2)[1:], how)
    opened = joye_libert.open_sum(c, less.astype(np.uint32), 2, how)[0]
    rest = (keys - rings.key_of(seeds(2)[:1], how.keys)[:, 0]) % Q
    assert (opened == rest).mean() < 0.1


def test_a_ciphertext_is_that_of_the_equation():
    """By Python's integers, for the first number of a ciphertext: (1 + n x) H^u mod n^2."""
    how = scheme()
    n, size, bits = MODULI[330], how.element_bytes, how.slot_bits
    key = rings.key_of(seeds(0)[:1], how.keys)[: how.slots, 0]
    x = sum((int(k) + 64) << (bits * i) for i, k in enumerate(key))
    limbs = joye_libert.key_row(seeds(0)[1:], how)[0].tolist()
    u = sum(limb << (how.limb_bits * i) for i, limb in enumerate(limbs))
    base = int(joye_libert._bases(how)[0])
    first = int.from_bytes(joye_libert.protect(seeds(0), how)[0, :size].tobytes(), "big")
    assert first == (1 + n * x) * pow(base, u, n * n) % (n * n)
    assert u.bit_length() <= how.key_bits == 2 * (330 - 2)


def test_moduli_are_the_challenges():
    """RSA-100 by its published factors; RSA-2048 has 617 digits and no small one."""
    p, q = (
        37975227936943673922808872755445627854565536638199,
        40094690950920881030683735292761468389214899724061,
    )
    assert MODULI[330] == p * q
    n = MODULI[2048]
    assert n.bit_length() == 2048
    # The check of the challenge's own page (from memory, not checked): the digits' sum.
    assert len(str(n)) == 617
    assert all(n % small for small in range(2, 2000))
    assert pow(3, n - 1, n) != 1
