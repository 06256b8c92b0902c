"""Each operation's counted work against a calculation by hand, of short vectors and of long ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from simfl.crypto.field import Q
from simfl.crypto.short_loops import SHORT
from simfl.dataplane.handles import F32, F64, U8, U32, Handle
from simfl.dataplane.ops import Ops
from simfl.dataplane.shadow import ShadowOps

LONG = SHORT + 1

Asked = Callable[[Ops, int], object]


def rows(count: int, length: int) -> Handle:
    return Handle(count, length, U32)


def work_of(asked: Asked, length: int) -> dict[str, int]:
    """Return what an operation counts beside its step and call."""
    ops = ShadowOps(Q)
    ops.begin((), "offline")
    asked(ops, length)
    (segment,) = ops.end()
    return {kind: n for kind, n in segment.work.items() if kind not in ("step", "call")}


SEED = Handle(1, 32, U8)
ON_VECTORS: dict[str, tuple[Asked, Callable[[int], dict[str, int]], Callable[[int], dict[str, int]]]] = {
    "add": (
        lambda ops, d: ops.add(rows(1, d), rows(1, d)),
        lambda d: {"field_add": d, "vector": 1, "short_element": d},
        lambda d: {"field_add": d, "vector": 1},
    ),
    "mask": (  # with five seeds: numpy begins anew with each
        lambda ops, d: ops.mask(rows(1, d), Handle(5, 32, U8), [1] * 5),
        lambda d: {
            "prg_seed": 5,
            "prg_element": 5 * d,
            "field_add": 5 * d,
            "vector": 6,
            "short_element": 6 * d,
        },
        lambda d: {"prg_seed": 5, "prg_element": 5 * d, "field_add": 5 * d, "vector": 1},
    ),
    "quantise": (
        lambda ops, d: ops.quantise(Handle(1, d, F32), 1, 1.0, 2**16, SEED, False),
        lambda d: {"quantise_element": d, "vector": 3, "short_element": 3 * d},
        lambda d: {"quantise_element": d, "vector": 3},
    ),
}
"""Operation, and its work on a short vector and on a long one."""


@pytest.mark.parametrize("name", ON_VECTORS)
@pytest.mark.parametrize("length", [1, SHORT, LONG, 100_000])
def test_vectors_are_counted_by_the_code_that_goes_over_them(name: str, length: int) -> None:
    """Up to 4,096 elements numpy does, and beyond compiled loops."""
    asked, short, long = ON_VECTORS[name]
    assert work_of(asked, length) == (short if length <= SHORT else long)(length)


def test_rows_are_gathered_from_their_handles() -> None:
    """Seven messages of a row each; three blocks of four rows are three times one."""
    assert work_of(lambda ops, d: ops.gather([rows(2, d)] * 7, [1] * 7), 10) == {"row": 7, "gathered_row": 7}
    assert work_of(lambda ops, d: ops.join([rows(4, d)] * 3), 10) == {"gathered_row": 3}


def test_a_real_sum_goes_over_each_update() -> None:
    asked: Asked = lambda ops, d: ops.real_sum([Handle(1, d, F64)] * 9, [1.0] * 9)  # noqa: E731
    assert work_of(asked, 50) == {"vector": 9, "real_mac": 450}


def test_a_code_counts_its_elements_beside_its_products() -> None:
    """d = 12 in U - T = 4 parts, for n = 8 users with U = 6: m = 3. 6 x 6 entries decode, in numpy."""
    points = list(range(1, 9))
    coded = work_of(lambda ops, d: ops.encode(rows(1, d), SEED, points, 6, 2), 12)
    products = {"mds_mac": 8 * 6 * 3, "mds_element": 8 * 3, "mds_coefficient": 8 * 6}
    assert coded == {"sharing": 1, "prg_seed": 1, "prg_element": 2 * 3, **products}
    decoded = work_of(lambda ops, d: ops.decode(rows(6, 3), points[:6], 6, 2, d), 12)
    assert decoded == {
        "decoding": 1,
        "mds_mac": 4 * 6 * 3,
        "mds_element": 4 * 3,
        "mds_inverse": 36,
        "vector": 12,
    }


@pytest.mark.parametrize(("U", "passes"), [(64, 2 * 64), (65, 0)])
def test_large_decodings_are_compiled(U: int, passes: int) -> None:
    """With T = 0: 64 x 64 entries are 4,096, and 65 x 65 more."""
    points = list(range(1, U + 1))
    work = work_of(lambda ops, d: ops.decode(rows(U, 1), points, U, 0, d), U)
    assert work.get("vector", 0) == passes


@pytest.mark.parametrize(("secrets", "passes"), [(45, 3 * 45), (46, 0)])
def test_many_secrets_are_compiled(secrets: int, passes: int) -> None:
    """Of 10 shares of 9 limbs each: 45 secrets have 4,050 limbs, and 46 have 4,140."""
    held = [(np.arange(10), np.zeros(10, np.int64))] * secrets
    shares = [Handle(1, 36, U8)] * 10
    work = work_of(lambda ops, d: ops.reconstruct(shares, held, range(1, 11)), 0)
    n = 10 * secrets
    sums = {"row": n, "secret": secrets, "shamir_mac": 9 * n, "lagrange_pair": 10 * n}
    assert work == {**sums, **({"vector": passes} if passes else {})}
