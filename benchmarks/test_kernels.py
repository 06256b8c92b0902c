"""The hot kernels, each beside what bounds it: a float64 product, a copy, a keystream, Horner's rule.

The sizes are the paper's: N = 200 users, T = 100, U = 140, d = 1,206,590, so a share has m = 30,165 elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from simfl.crypto import field, mds, ntt, prg, quantize, shamir
from simfl.crypto.field import Q

D, N, LEVELS = 1_206_590, 200, 2**16
SEEDS = np.arange(N * 32, dtype=np.uint8).reshape(N, 32)
SHAPES = {"200x140 by 140x30,165": (200, 140, 30_165), "1000x700 by 700x6,033": (1000, 700, 6_033)}
REACH = {
    "200x140 by 140x30,165": {"limbs": 2.3, "ntt": 1.0},
    "1000x700 by 700x6,033": {"ntt": 0.5},
}

Work = Callable[[], object]


def elements(*shape: int, q: int = Q) -> Any:
    return np.random.default_rng(1).integers(0, q, shape, np.uint32)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["float64", "limbs", "ntt"])
def test_product(shape: str, name: str, beside: Any) -> None:
    a, k, m = SHAPES[shape]
    W, Z = elements(a, k), elements(k, m)
    if name == "float64":
        left, right = W.astype(float), Z.astype(float)
        beside(f"product {shape}", "float64 product", lambda: left @ right)
    elif name == "ntt":
        how, Z = ntt.plan(mds.points_of(tuple(range(a)), ntt.Q), k, ntt.Q), Z % np.uint32(ntt.Q)
        beside(
            f"product {shape}",
            "ntt, q = 2147352577",
            lambda: ntt.evaluate(Z, how, ntt.Q),
            REACH[shape]["ntt"],
        )
    else:
        beside(f"product {shape}", name, lambda: field.matmul(W, Z, Q), REACH[shape].get(name, 1.0))


@pytest.mark.parametrize("name", ["copy", "one by one", "as a matrix", "any weights"])
def test_sum(name: str, beside: Any) -> None:
    rows = np.broadcast_to(elements(1, D), (N, D)).copy()
    listed, large = [row[None] for row in rows], [Q - 1 - u for u in range(N)]
    room = np.ones_like(rows)
    work: dict[str, Work] = {
        "copy": lambda: np.copyto(room, rows),
        "one by one": lambda: field.weighted_sum(listed, None, Q),
        "as a matrix": lambda: field.weighted_sum(rows, None, Q),
        "any weights": lambda: field.weighted_sum(listed, large, Q),
    }
    beside("sum of 200 vectors", name, work[name], None if name == "copy" else 0.8)


def keystream(length: int) -> Work:
    """AES-128-CTR of so many words from a new context, 64 kB at a time into an array made beforehand."""
    zeros, size = memoryview(bytes(1 << 16)), 4 * length
    view = np.empty(size + 15, np.uint8).data

    def call() -> None:
        stream = Cipher(algorithms.AES(bytes(16)), modes.CTR(bytes(16))).encryptor()
        for i in range(0, size, len(zeros)):
            step = min(len(zeros), size - i)
            stream.update_into(zeros[:step], view[i : i + step + 15])

    return call


@pytest.mark.parametrize("name", ["keystream", "2^32 - 5", "2147352577"])
def test_prg(name: str, beside: Any) -> None:
    q = ntt.Q if name == "2147352577" else Q
    work = keystream(D) if name == "keystream" else lambda: prg.expand(SEEDS[:1], D, q)
    beside("PRG, 1.2 M elements", name, work, None if name == "keystream" else 1.2)


@pytest.mark.parametrize("name", ["60 keystreams", "2^32 - 5", "2147352577"])
def test_masking_with_60_seeds(name: str, beside: Any) -> None:
    q = ntt.Q if name == "2147352577" else Q
    x, raw, signs = elements(1, D, q=q), keystream(D), [1, -1] * 30
    if name == "60 keystreams":
        beside("mask, 60 seeds x 1.2 M", name, lambda: [raw() for _ in signs])
    else:
        beside("mask, 60 seeds x 1.2 M", name, lambda: prg.mask(x, SEEDS[:60], signs, q), 1.5)


@pytest.mark.parametrize("name", ["copy of both", "quantise and dequantise"])
def test_rounding(name: str, beside: Any) -> None:
    delta = np.random.default_rng(1).normal(0, 0.5, (1, D)).astype(np.float32)
    x = quantize.quantise(delta, 1, 1.0, LEVELS, SEEDS[:1], Q, False)
    rooms = np.ones_like(delta), np.ones_like(x)

    def copy() -> None:
        np.copyto(rooms[0], delta)
        np.copyto(rooms[1], x)

    def both() -> None:
        quantize.quantise(delta, 1, 1.0, LEVELS, SEEDS[:1], Q, False)
        quantize.dequantise(x, LEVELS, 7, Q)

    yardstick = name == "copy of both"
    beside("quantise and back, 1.2 M", name, copy if yardstick else both, None if yardstick else 4.0)


@pytest.mark.parametrize("name", ["Horner in Python", "one user"])
def test_shamir_shares_of_a_user(name: str, beside: Any) -> None:
    t, points = 101, range(1, N + 1)
    polynomials = prg.expand(SEEDS[:1], 9 * t, shamir.P).reshape(9, t).tolist()

    def horner() -> None:
        for polynomial in polynomials:
            for x in points:
                value = 0
                for c in reversed(polynomial):
                    value = (value * x + c) % shamir.P

    if name == "Horner in Python":
        beside("Shamir, t = 101 of 200", name, horner)
    else:
        beside("Shamir, t = 101 of 200", name, lambda: shamir.share(SEEDS[:1], SEEDS[:1], points, t), 0.05)
