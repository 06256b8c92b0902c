"""Rings: products against convolutions of integers, packing, both schemes against plain sums, their laws."""

import numpy as np
import pytest
from flint import fmpz_poly
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from simfl.crypto import rings
from simfl.crypto.field import Q, is_prime
from simfl.crypto.rings import Ahe, Kahe, ring_of
from tests.sizes import examples

SMALL = ring_of(16, (20, 19, 21))


def seed(*of):
    return np.random.default_rng(of).integers(0, 256, (1, 32), dtype=np.uint8)


@pytest.mark.parametrize("bits", [(26, 25, 25), (27, 27, 26), (24,) * 4, (29,) * 4 + (28,) * 3])
@pytest.mark.parametrize("n", [4096, 8192])
def test_a_ring_has_the_bits_that_are_asked_for(n, bits):
    ring = ring_of(n, bits)
    assert [q.bit_length() for q in ring.primes] == list(bits)
    assert len({*ring.primes}) == len(bits)
    assert all(is_prime(q) and (q - 1) % (2 * n) == 0 for q in ring.primes)
    assert ring.element_bytes == n * sum(bits) // 8


@settings(max_examples=examples(40), deadline=None, derandomize=True)
@given(st.lists(st.lists(st.integers(-(2**58), 2**58), min_size=16, max_size=16), min_size=2, max_size=2))
def test_products_are_those_of_polynomials(pair):
    # FLINT's product over the integers, reduced by X^16 = -1 and to the least magnitude modulo Q.
    a, b = (np.array(coefficients, object)[:, None] for coefficients in pair)
    product = rings._product(rings.evaluated(a, SMALL), rings.evaluated(b, SMALL), SMALL)
    whole = (fmpz_poly(pair[0]) * fmpz_poly(pair[1])).coeffs()
    whole = [int(c) for c in whole] + [0] * (32 - len(whole))
    q = SMALL.modulus
    expected = [(whole[k] - whole[k + 16] + q // 2) % q - q // 2 for k in range(16)]
    assert rings.coefficients_of(product, SMALL)[:, 0].tolist() == expected


@settings(max_examples=examples(30), deadline=None, derandomize=True)
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_elements_are_sent_in_the_bits_of_their_primes(number, m):
    rng = np.random.default_rng(number)
    values = np.stack([rng.integers(0, q, (16, m), dtype=np.uint32) for q in SMALL.primes])
    sent = rings.packed(values, SMALL)
    assert sent.shape == (1, m * 16 * 60 // 8)
    assert (rings.unpacked(sent[0], SMALL) == values).all()
    # Each residue's bits, most significant first, one prime behind the other.
    text = "".join(f"{int(x):0{q.bit_length()}b}" for q, rows in zip(SMALL.primes, values, strict=True)
                   for x in rows.T.reshape(-1))  # fmt: skip
    assert sent.tobytes() == int(text, 2).to_bytes(len(text) // 8, "big")


def schemes(length, slots=2):
    kahe = Kahe(ring_of(16, (31, 30, 29)), -(-length // (16 * slots)), slots, 35, 35 * slots, length, Q, b"k")
    return kahe, Ahe(ring_of(16, (31, 31, 30)), 1, 109_965, kahe, b"a")


@settings(max_examples=examples(40), deadline=None, derandomize=True)
@given(st.integers(1, 70), st.integers(1, 5), st.integers(1, 4), st.integers(0, 3))
def test_sums_open_with_sums_of_keys(length, users, parties, revealed):
    kahe, ahe = schemes(length, slots=1)
    rng = np.random.default_rng([length, users])
    vectors = rng.integers(0, Q, (users, 1, length), dtype=np.uint32)
    # The largest words are the ones that could leave their slots.
    vectors[0, 0, : length // 2] = Q - 1
    secrets = [np.concatenate([seed(1, j), seed(2, j)]) for j in range(parties)]
    shares = [rings.share_key(secret, ahe) for secret in secrets]
    joint = shares[0]
    for share in shares[1:]:
        joint = rings.add(joint, share, ahe.ring)
    update = key = None
    for i, x in enumerate(vectors):
        k = seed(3, i)
        sent = rings.encrypt(x, np.concatenate([k, seed(4, i)]), kahe)
        hidden = rings.encrypt_key(joint, np.concatenate([k, seed(5, i), seed(6, i)]), ahe)
        update = sent if update is None else rings.add(update, sent, kahe.ring)
        key = hidden if key is None else rings.add(key, hidden, ahe.ring)
    opened = key[:1]
    for j, secret in enumerate(secrets):
        # The last ones' secrets are revealed, so their parts need no flooding.
        seeds = secret[:1] if j >= parties - revealed else np.concatenate([secret[:1], seed(7, j)])
        opened = rings.add(opened, rings.open_part(key[1:], seeds, ahe), ahe.ring)
    keys = rings.combine(opened, ahe)
    assert (((keys.astype(np.int64) + Q // 2) % Q) - Q // 2)[0].tolist() == sum(
        rings.key_of(seed(3, i), kahe) for i in range(users)
    )[:, 0].tolist()
    assert rings.decrypt(update, keys, kahe).tolist() == (vectors.astype(np.uint64).sum(axis=0) % Q).tolist()


def test_without_one_party_nothing_opens():
    kahe, ahe = schemes(10)
    secrets = [np.concatenate([seed(1, j), seed(2, j)]) for j in range(2)]
    joint = rings.add(*(rings.share_key(secret, ahe) for secret in secrets), ahe.ring)
    key = rings.encrypt_key(joint, np.concatenate([seed(3), seed(5), seed(6)]), ahe)
    opened = rings.add(key[:1], rings.open_part(key[1:], secrets[0][:1], ahe), ahe.ring)
    wrong = rings.combine(opened, ahe)
    # Coefficients over the whole plaintext, and not the few of a key.
    assert np.abs(wrong).max() > 1000 > np.abs(rings.key_of(seed(3), kahe)).max()


def test_ciphertexts_of_zeros_are_uniform():
    kahe, _ = schemes(32)
    zeros = np.zeros((1, 32), np.uint32)
    updates = [rings.encrypt(zeros, np.concatenate([seed(1, i), seed(2, i)]), kahe) for i in range(200)]
    values = np.concatenate([rings.unpacked(u[0], kahe.ring)[0].reshape(-1) for u in updates])
    assert stats.kstest(values / kahe.ring.primes[0], "uniform").pvalue > 0.001


def test_errors_have_their_laws():
    errors = rings._errors(seed(9), 4096, 8)
    counts = np.bincount(errors.reshape(-1) + 16, minlength=33)
    # A difference of two sums of 16 bits is a binomial of 32 bits, less 16.
    expected = errors.size * stats.binom(32, 0.5).pmf(np.arange(33))
    some = expected > 5
    assert (
        stats.chisquare(counts[some], expected[some] * counts[some].sum() / expected[some].sum()).pvalue
        > 0.001
    )
    ternary = np.bincount(rings._ternary(seed(8), 9000)[:, 0] + 1)
    assert stats.chisquare(ternary).pvalue > 0.001
