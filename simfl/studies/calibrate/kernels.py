"""The seconds of each kind of work, from the kernels that simfl itself runs.

Every kernel is called at sizes where the work in question dominates. Where it costs something a call, an item
or a step besides what it costs a byte or a multiply-add, it is called at two sizes and both are solved for.
All of it on one thread, in CPU seconds. A measurement is one call, the fastest of a few; `passes` repeats it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.optimize import nnls

from simfl.crypto import field, keys, mds, prg, quantize, shamir
from simfl.dataplane import audit
from simfl.learning.server_opt import Averaging
from simfl.protocols.channels import aads_of, nonces_of
from simfl.protocols.index_views import Same
from simfl.random_streams import Streams

Q = field.Q
D = 1_000_000
STREAMS = Streams(1)
CACHE_FILLER = np.zeros(4_000_000)  # 32 MB
Rates = dict[str, float]


def seconds(call: Callable[[], object], repeats: int = 3, cold: bool = False) -> float:
    """Return the least CPU seconds of a call; cold: with other data in the processor's caches each time."""
    times = []
    for _ in range(repeats):
        if cold:
            CACHE_FILLER.sum()
        start = time.thread_time()
        call()
        times.append(time.thread_time() - start)
    return min(times)


def seed(*names: str | int) -> np.ndarray:
    """Return a 32-byte seed."""
    return np.frombuffer(STREAMS.bytes(*names), np.uint8).reshape(1, 32)


def solve(*rows: tuple[float, float, float]) -> tuple[float, float]:
    """Return (a, b) of T = a x + b y over rows (x, y, T), neither negative, by least relative squares."""
    x, y, t = np.array(rows).T
    (a, b), _ = nnls(np.stack([x / t, y / t], axis=1), np.ones(len(t)))
    return max(float(a), 1e-12), max(float(b), 1e-15)


def of_keys() -> Rates:
    """Measure key pairs, agreements, and authenticated encryption."""
    secret, n = seed("secret"), 50
    publics = np.concatenate([keys.public(seed("peer", i)) for i in range(n)])
    agreed = keys.agree(secret, publics, b"x")
    rows = []
    for length in (100, 120_000):
        items, sender = np.zeros((n, length), np.uint8), Same(0, n)
        nonces, aads = nonces_of(sender, sender), aads_of(sender, range(1, n + 1))
        seal = partial(keys.seal, agreed, items, nonces, aads)
        rows.append((n, n * length, seconds(seal)))
    agree_s = seconds(lambda: keys.agree(secret, publics, b"x"))
    rates = {"x25519": seconds(lambda: keys.public(secret), 15), "agree": agree_s / n}
    rates["aead_item"], rates["aead_byte"] = solve(*rows)
    return rates


def of_vectors() -> Rates:
    """Measure masks, sums and quantisation over a million elements."""
    a, b = prg.expand(seed("a"), D, Q), prg.expand(seed("b"), D, Q)
    rows, weights = [a, b] * 5, [64, 32] * 5
    delta = (prg.expand(seed("c"), D, Q) / Q - 0.5).astype(np.float32)
    quantised = quantize.quantise(delta, 3, 1.0, 2**16, seed("q"), Q, False)
    forth_s = seconds(lambda: quantize.quantise(delta, 3, 1.0, 2**16, seed("q"), Q, False))
    back_s = seconds(lambda: quantize.dequantise(quantised, 2**16, 3, Q))
    g = delta.astype(np.float64)
    seeds, few = np.concatenate([seed("mask", i) for i in range(50)]), np.zeros((1, 16), np.uint32)
    return {
        "prg_seed": seconds(lambda: prg.mask(few, seeds, [1] * 50, Q)) / 50,
        "prg_element": seconds(lambda: prg.expand(seed("a"), D, Q)) / D,
        "field_add": seconds(lambda: field.add(a, b, Q)) / D,
        "field_mac": seconds(lambda: field.weighted_sum(rows, weights, Q)) / (len(rows) * D),
        "quantise_element": (forth_s + back_s) / (2 * D),
        "real_mac": seconds(lambda: audit.real_sum([delta] * 5, [1.0] * 5)) / (5 * D),
        "apply_element": seconds(lambda: Averaging().apply(delta, g, 1.0)) / D,
    }


def of_codes() -> Rates:
    """Measure MDS codes and Shamir shares. `mds_coefficient` is of a decoding matrix; an entry of a coding
    matrix takes about as long."""
    points, U, T = list(range(1, 101)), 70, 50
    z = prg.expand(seed("z"), 200_000, Q)
    m = mds.share_length(z.shape[1], U, T)
    noise = seconds(lambda: prg.expand(seed("n"), T * m, Q))
    encode = seconds(lambda: mds.encode(z, seed("n"), points, U, T, Q)) - noise
    secrets = np.concatenate([seed("s"), seed("b")])
    decoded, shared, reconstructed = [], [], []
    for u in (20, 60, 140):
        decode = partial(mds.decode, np.ones((u, 1), np.uint32), range(1, u + 1), u, 1, u - 1, Q)
        decoded.append((1.0, float(u**2), seconds(decode, 7, cold=True)))  # it comes once a round
    for n, t in ((4, 2), (100, 51)):
        at = list(range(1, n + 1))
        taken = seconds(partial(shamir.share, secrets, seed("c"), at, t))
        shared.append((1.0, 9.0 * len(secrets) * n * t, taken))
    for t in (3, 51):
        at = list(range(1, t + 2))
        rows = list(shamir.share(secrets[:1], seed("c"), at, t)[:, None])
        others = [np.delete(np.arange(t + 1), k % t) for k in range(20)]  # never the same as just before
        held = [(users, np.zeros(t, np.int64)) for users in others]
        taken = seconds(partial(shamir.reconstruct_many, rows, held, at))
        reconstructed.append((1.0, float(t**2), taken / len(held)))
    rates = {"mds_mac": encode / (len(points) * U * m)}
    rates["decoding"], rates["mds_coefficient"] = solve(*decoded)
    rates["sharing"], rates["shamir_mac"] = solve(*shared)
    rates["secret"], rates["lagrange_pair"] = solve(*reconstructed)
    return rates
