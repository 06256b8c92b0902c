"""What the vector kernels cost, beside a copy or a keystream of the same length in the same run.

    python benchmarks/vectors.py [length [users]]

A line is a kernel on vectors of `length` elements (the paper's 1,206,590), its time the median of calls that
take turns with those of its measure: np.copyto of the bytes that the kernel reads, AES-128 in counter mode
into an array made beforehand, or the plain way in Python. Everything runs on one thread. Sums and shares are
of `users` users (200), the shares for a threshold of half of them and one.
"""

from __future__ import annotations

import platform
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from threadpoolctl import threadpool_limits

from simfl.crypto import field, prg, quantize, shamir
from simfl.crypto.field import Q

SEEDS = np.arange(200 * 32, dtype=np.uint8).reshape(200, 32)
NTT = 2147352577  # 2^16 divides q - 1; a word in 16,384 is rejected
LEVELS = 2**16

Call = Callable[[], object]
Line = tuple[str, Call, str, Call]


def keystream(length: int) -> Call:
    """AES-128-CTR from a new context, 64 kB at a time."""
    zeros, size = memoryview(bytes(1 << 16)), 4 * length
    view = np.empty(size + 15, np.uint8).data

    def call() -> None:
        stream = Cipher(algorithms.AES(bytes(16)), modes.CTR(bytes(16))).encryptor()
        for i in range(0, size, len(zeros)):
            step = min(len(zeros), size - i)
            stream.update_into(zeros[:step], view[i : i + step + 15])

    return call


def copy(*arrays: np.ndarray) -> Call:
    """np.copyto of every array."""
    rooms = [np.ones_like(array) for array in arrays]
    return lambda: [np.copyto(room, array) for room, array in zip(rooms, arrays, strict=True)]


def horner(coefficients: list[list[int]], points: list[int]) -> Call:
    """Every polynomial at every point, in Python integers."""

    def call() -> None:
        for polynomial in coefficients:
            for x in points:
                value = 0
                for c in reversed(polynomial):
                    value = (value * x + c) % shamir.P

    return call


def streams(length: int) -> list[Line]:
    raw, x = keystream(length), prg.expand(SEEDS[:1], length, Q)
    signs = [1, -1] * 30
    lines: list[Line] = [("words", lambda: prg.words(SEEDS[:1], length), "keystream", raw)]
    for q in (Q, NTT, 2**31 - 1):
        lines += [(f"expand, q = {q}", lambda q=q: prg.expand(SEEDS[:1], length, q), "keystream", raw)]
    for q in (Q, NTT):
        y = x % np.uint32(q)
        lines += [
            (f"mask, 1 seed, q = {q}", lambda q=q, y=y: prg.mask(y, SEEDS[:1], [1], q), "keystream", raw),
            (
                f"mask, 60 seeds, q = {q}",
                lambda q=q, y=y: prg.mask(y, SEEDS[:60], signs, q),
                "60 keystreams",
                lambda: [raw() for _ in signs],
            ),
        ]
    return lines


def arithmetic(length: int, users: int) -> list[Line]:
    a, b = prg.expand(SEEDS[:1], length, Q), prg.expand(SEEDS[1:2], length, Q)
    rows = np.concatenate([a if u % 2 else b for u in range(users)])
    listed, small, large = [row[None] for row in rows], range(1, users + 1), [Q - 1 - u for u in range(users)]
    both, all_rows = copy(a, b), copy(rows)
    return [
        ("add", lambda: field.add(a, b, Q), "copy of both", both),
        ("sub", lambda: field.sub(a, b, Q), "copy of both", both),
        (f"sum of {users}", lambda: field.weighted_sum(listed, None, Q), "copy of all", all_rows),
        ("  the same as a matrix", lambda: field.weighted_sum(rows, None, Q), "copy of all", all_rows),
        ("  small weights", lambda: field.weighted_sum(listed, small, Q), "copy of all", all_rows),
        ("  any weights", lambda: field.weighted_sum(listed, large, Q), "copy of all", all_rows),
    ]


def rounding(length: int) -> list[Line]:
    delta = np.random.Generator(np.random.Philox(1)).normal(0, 0.5, (1, length)).astype(np.float32)
    x = quantize.quantise(delta, 1, 1.0, LEVELS, SEEDS[:1], Q, False)
    calls: dict[str, Call] = {
        "signed_levels": lambda: quantize.signed_levels(delta, 1.0, LEVELS, SEEDS[:1]),
        "quantise": lambda: quantize.quantise(delta, 1, 1.0, LEVELS, SEEDS[:1], Q, False),
        "  beyond the field": lambda: quantize.quantise(delta, 2**20, 1.0, LEVELS, SEEDS[:1], Q, False),
        "dequantise": lambda: quantize.dequantise(x, LEVELS, 7, Q),
        "count_clipped": lambda: quantize.count_clipped(delta, 1.0),
    }
    measure = copy(delta)
    with_stream = keystream(length)
    lines: list[Line] = [(name, call, "copy", measure) for name, call in calls.items()]
    return [*lines, ("quantise", calls["quantise"], "keystream", with_stream)]


def sharing(users: int) -> list[Line]:
    t, points = users // 2 + 1, list(range(1, users + 1))
    secrets = [SEEDS[u % 200, None] for u in range(users)]
    seeds = np.concatenate(secrets)
    polynomials = prg.expand(SEEDS[:1], 9 * t, shamir.P).reshape(9, t).tolist()
    slow = horner(polynomials, points)
    return [
        ("share, one user", lambda: shamir.share(secrets[0], seeds[:1], points, t), "Horner, one user", slow),
        (
            f"share_many, {users} users",
            lambda: shamir.share_many(secrets, seeds, points, t),
            f"Horner, {users} users",
            lambda: [slow() for _ in range(users)],
        ),
    ]


def seconds(*calls: Call) -> list[float]:
    """The median time of each call; they take turns, for about a second and at least three times."""
    taken: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    while len(taken[0]) < 3 or sum(map(sum, taken)) < 1:
        for call, times in zip(calls, taken, strict=True):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
    return [statistics.median(times) for times in taken]


def main(length: int = 1_206_590, users: int = 200) -> None:
    """Print the table."""
    print(f"Python {platform.python_version()}, NumPy {np.__version__}; vectors of {length:,}; milliseconds")
    print(f"{'kernel':<34}{'ms':>10}   {'measure':<20}{'ms':>10}{'ratio':>8}")
    groups = (streams(length), rounding(length), sharing(users), arithmetic(length, users))
    for name, kernel, against, measure in (line for group in groups for line in group):
        with threadpool_limits(1):
            own, base = seconds(kernel, measure)
        print(f"{name:<34}{own * 1e3:10.3f}   {against:<20}{base * 1e3:10.3f}{own / base:8.3f}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
