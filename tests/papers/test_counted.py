"""A counted round against counts by hand, from the protocols' papers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from papers import exponents, measures
from papers import lightsecagg_table1 as table
from papers.counted import Round, count
from simfl.crypto import mds, ntt
from simfl.protocols.machine import SERVER, Params

N, D, T, U, d = 8, 2, 4, 6, 15
PARAMS = Params(d=d, q=2**32 - 5, T=T, U=U, t=T + 1, k=4)


def counted(protocol: str) -> Round:
    return count(protocol, PARAMS, N, D, seed=1)


@pytest.mark.parametrize(("power", "found"), [(1, 1.0), (2, 2.0)])
def test_the_exponent_of_d_is_that_of_the_count(power: int, found: float) -> None:
    """c(d) = 7 + d^power, at three d."""

    def made(protocol: str, N: int, length: int) -> Round:
        r = Round()
        r.work[SERVER, "upload"]["field_add"] = 7 + length**power
        return r

    grid = exponents.Grid((8,), (2**4, 2**6, 2**8), made, {})
    ours = exponents.exponent_of_d(grid, lambda r: r.work[SERVER, "upload"]["field_add"], "x")
    assert ours == pytest.approx(found, abs=1e-4)


def test_secagg_by_hand() -> None:
    """N - 1 agreements for channels and as many for masks; 9 limbs of two secrets in N shares of t terms."""
    r = counted("secagg")
    assert r.survivors == tuple(range(N - D))
    user = r.of_users("offline")
    assert (user["x25519"], user["agree"]) == (2, 2 * (N - 1))
    assert user["shamir_mac"] == 9 * 2 * N * (T + 1)
    assert user["prg_element"] == N * (d + 1) + 2 * 9 * T  # all masks; the coefficients of t - 1 = T terms
    assert user["field_add"] == (N - 1) * (d + 1)
    upload = r.of_users("upload")
    assert (upload["field_add"], "prg_element" in upload) == (d + 1, False)
    assert r.stored[0] >= 4 * (d + 1) + 2 * 36 * N
    server = r.of_server("recovery")
    assert server["prg_element"] == ((N - D) + D * (N - D)) * (d + 1)
    assert server["lagrange_pair"] == N * (T + 1) ** 2
    assert server["agree"] == D * (N - D)
    assert r.up[0, "upload"] == 4 * (d + 1)
    assert r.up[0, "recovery"] == 36 * N
    assert r.up[N - 1, "upload"] == 0


def test_lightsecagg_by_hand() -> None:
    """A share has m = (d + 1) / (U - T) elements; the sum of those of all survivors is sent."""
    r, m = counted("lightsecagg"), (d + 1) // (U - T)
    user = r.of_users("offline")
    assert user["mds_mac"] == N * U * m
    assert r.up[0, "offline"] == 32 + (N - 1) * (4 * m + 16)
    assert r.up[0, "recovery"] == 4 * m
    rows = 2 * (N - D)  # picked and summed
    added = {"vector": 1, "field_mac": (N - D) * m, "short_element": 2 * (N - D) * m}
    assert r.of_users("recovery") == {"step": 1, "call": 2, "row": rows, **added}
    assert r.of_server("recovery")["mds_mac"] == (U - T) * U * m
    assert "prg_element" not in r.work[SERVER, "recovery"]
    assert r.stored[0] >= 4 * (d + 1) + 4 * N * m


def test_a_sparse_graph_costs_its_neighbours() -> None:
    user = count("secagg_plus", replace(PARAMS, t=2), N, D, seed=1).of_users("offline")
    assert user["agree"] == 2 * PARAMS.k


def test_a_round_without_a_result_is_shown() -> None:
    with pytest.raises(ValueError, match=r"secagg: a round of 8 users without a result: .* 5 needed"):
        count("secagg", PARAMS, N, 4, seed=1)


@pytest.mark.parametrize("quantity", [*table.TABLE_1, *table.TABLE_5], ids=lambda q: q.label)
@pytest.mark.parametrize("protocol", table.PROTOCOLS)
def test_counts_are_affine_in_d(quantity: exponents.Quantity, protocol: str) -> None:
    least = table.USERS[0]
    slope, rest = exponents.parts(table.GRID, quantity.of, protocol, least)
    for length in table.LENGTHS:
        ours = quantity.of(table.counted(protocol, least, length))
        assert ours == pytest.approx(slope * length + rest, rel=1e-12)


def test_the_factor_of_d_at_32_users() -> None:
    """24 of 32 survive. SecAgg's server expands 24 own masks and 24 of each of 8; its users
    32, and add 31 of them to their own."""
    assert exponents.parts(table.GRID, measures.expansion, "secagg", 32)[0] == 24 + 8 * 24
    assert exponents.parts(table.GRID, measures.offline_computation, "secagg", 32)[0] == 2 * 32 - 1
    assert exponents.parts(table.GRID, measures.decoding, "lightsecagg", 32)[0] == 24
    assert exponents.parts(table.GRID, measures.online_communication, "lightsecagg", 32)[0] == 1 + 1 / 8


def test_exponents_of_powers_and_logarithms() -> None:
    assert exponents.exponent(table.USERS, [N**2 for N in table.USERS]) == 2
    assert exponents.exponent(table.USERS, [5.0] * len(table.USERS)) == 0
    assert 0.2 < exponents.exponent(table.USERS, [exponents.log_(N) for N in table.USERS]) < 0.22


@pytest.mark.ci
def test_a_part_of_a_row_is_shown_and_not_judged() -> None:
    row = exponents.Quantity("x", measures.online_computation, (table.BOTH["d"],) * 3, printed=False)
    cells = exponents.cells_of(table.GRID, (row,))
    assert {(cell.paper, cell.agrees) for cell in cells} == {(None, None)}


def test_the_transform_goes_over_all_rows_once_a_pass() -> None:
    """64 points and 48 coefficients: three passes of radix 4 over 64 rows, for m = d / 16."""
    plan = ntt.plan(mds.points_of(tuple(range(64)), ntt.Q), 48, ntt.Q)
    assert plan is not None
    assert plan.work == 3 * 64
    assert "12, 12, 16" in table.transform().remark
