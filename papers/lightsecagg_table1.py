"""LightSecAgg Tables 1 and 5: what grows how, counted, with fitted exponents beside the stated ones."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import log2

from papers.counted import Round, count
from papers.entry import Cell, Chart, Entry, Evidence, Line, Place
from papers.exponents import (
    SLACK,
    Grid,
    Quantity,
    cells_of,
    exponent,
    linear,
    log_,
    log_squared,
    n_log,
    n_log_squared,
    one,
    square,
)
from papers.measures import (
    decoding,
    expansion,
    interpolation,
    offline_communication,
    offline_computation,
    offline_storage,
    online_communication,
    online_communication_server,
    online_computation,
    reconstruction,
)
from simfl.crypto import mds, ntt
from simfl.protocols.machine import Params

USERS = (32, 64, 128, 256, 512)
LENGTHS = (2**14, 2**16, 2**18)
"""Of a masked vector, d + 1: multiples of U - T for every N, so that nothing is padded."""
PROTOCOLS = {"secagg": "SecAgg", "secagg_plus": "SecAgg+", "lightsecagg": "LightSecAgg"}


def parameters(N: int, length: int) -> Params:
    """The paper's case: T = N / 2, D = N / 4 (p = 0.25), U = N - D; SecAgg+ with 3 log2 N neighbours."""
    k = round(3 * log2(N))
    return Params(d=length - 1, q=2**32 - 5, T=N // 2, U=3 * N // 4, t=N // 2 + 1, k=k)


@cache
def counted(protocol: str, N: int, length: int) -> Round:
    """A round with N / 4 users lost."""
    params = parameters(N, length)
    if protocol == "secagg_plus":
        params = replace(params, t=params.k // 3)
    return count(protocol, params, N, N // 4, seed=1)


GRID = Grid(USERS, LENGTHS, counted, PROTOCOLS)

BOTH = {
    "sN": ("O(sN)", None, linear),
    "slog": ("O(s log N)", None, log_),
    "dN+sN2": ("O(dN + sN²)", linear, square),
    "dlog+slog2": ("O(d log N + s log² N)", log_, log_squared),
    "d+sN": ("O(d + sN)", one, linear),
    "d+slog": ("O(d + s log N)", one, log_),
    "dN+sNlog": ("O(dN + sN log N)", linear, n_log),
    "d": ("O(d)", one, None),
}
"""What both tables print."""

TABLE_1 = (
    Quantity("offline comm. (U)", offline_communication, (BOTH["sN"], BOTH["slog"], BOTH["d"])),
    Quantity(
        "offline comp. (U)",
        offline_computation,
        (BOTH["dN+sN2"], BOTH["dlog+slog2"], ("O(d log N)", log_, None)),
    ),
    Quantity("online comm. (U)", online_communication, (BOTH["d+sN"], BOTH["d+slog"], BOTH["d"])),
    Quantity(
        "online comm. (S)",
        online_communication_server,
        (BOTH["dN+sN2"], BOTH["dN+sNlog"], ("O(dN)", linear, None)),
    ),
    Quantity("online comp. (U)", online_computation, (BOTH["d"],) * 3),
    Quantity(
        "reconstruction (S)",
        reconstruction,
        (("O(dN²)", square, None), ("O(dN log N)", n_log, None), ("O(d log N)", log_, None)),
    ),
)

TABLE_5 = (
    Quantity(
        "offline storage per user",
        offline_storage,
        (("O(d + Ns)", one, linear), BOTH["d+slog"], ("O(d + dN/(U-T))", one, None)),
    ),
    Quantity(
        "offline communication per user",
        offline_communication,
        (BOTH["sN"], BOTH["slog"], ("O(dN/(U-T))", one, None)),
    ),
    Quantity(
        "offline computation per user",
        offline_computation,
        (BOTH["dN+sN2"], BOTH["dlog+slog2"], ("O(dN log N/(U-T))", log_, None)),
    ),
    Quantity(
        "online communication per user",
        online_communication,
        (BOTH["d+sN"], BOTH["d+slog"], ("O(d + d/(U-T))", one, None)),
    ),
    Quantity(
        "online communication at server",
        online_communication_server,
        (BOTH["dN+sN2"], BOTH["dN+sNlog"], ("O(dN + dU/(U-T))", linear, None)),
    ),
    Quantity(
        "online computation per user",
        online_computation,
        (BOTH["d"], BOTH["d"], ("O(d + dU/(U-T))", one, None)),
    ),
    Quantity(
        "decoding complexity at server",
        decoding,
        (("O(sN²)", None, square), ("O(sN log² N)", None, n_log_squared), ("O(dU log U/(U-T))", log_, None)),
    ),
    Quantity(
        "of which shares, without Lagrange's weights",
        interpolation,
        (("O(sN²)", None, square), ("O(sN log² N)", None, n_log_squared), None),
        printed=False,
    ),
    Quantity(
        "PRG complexity at server",
        expansion,
        (("O(dN²)", square, None), ("O(dN log N)", n_log, None), ("none", None, None)),
    ),
)


def transform() -> Cell:
    """Encoding by the number theoretic transform of `field.q: ntt`: rows that its passes go over."""

    def rows(N: int) -> float:
        params = parameters(N, LENGTHS[0])
        plan = ntt.plan(mds.points_of(tuple(range(N)), ntt.Q), params.U, ntt.Q)
        assert plan is not None
        return plan.work / (params.U - params.T)

    label = "offline comp. (U), LightSecAgg with field.q: ntt, O(d log N): exponent of N, terms with d"
    remark = "rows that the transform's passes go over: " + ", ".join(f"{rows(N):.4g}" for N in USERS)
    stated, counts = exponent(USERS, [log_(N) for N in USERS]), [rows(N) for N in USERS]
    ours = exponent(USERS, counts)
    return Cell(label, stated, ours, "exponent", "at most", SLACK, remark, "by construction")


def run_1(place: Place) -> Evidence:
    """Table 1, with a transform's count, and totals as a figure."""
    cells = [*cells_of(GRID, TABLE_1), transform()]
    charts = [
        Chart(f"{row.label}, d = 2^18", "users N", "elements or operations", tuple(
            Line(name, tuple(map(float, USERS)), tuple(row.of(counted(p, N, LENGTHS[-1])) for N in USERS))
            for p, name in PROTOCOLS.items()
        ), log_x=2, log_y=10)
        for row in (TABLE_1[1], TABLE_1[5])
    ]  # fmt: skip
    return Evidence(tuple(cells), tuple(charts))


def run_5(place: Place) -> Evidence:
    """Table 5."""
    return Evidence(tuple(cells_of(GRID, TABLE_5)))


HOW = (
    "Counts are affine in d. Two values of d separate the term with d from the rest (keys, shares, lists),"
    " and each term is compared separately: the slope of a line through the logarithms against N, beside the"
    " slope of the stated term. O() is an upper limit; 0.02 is allowed for lower-order terms. A term that the"
    " paper leaves out beside one with d, such as N s beside d, is not judged. Work on a vector is counted by"
    " its elements, so that the exponent of d is 1 by construction. T = N / 2, D = N / 4, U = 3 N / 4, N = 32"
    " .. 512; SecAgg+ has 3 log2 N neighbours, which is our reading of O(log N); a quarter of the users are"
    " lost after sharing."
)
PRODUCTS = (
    "The paper counts a fast transform for coding and decoding. simfl multiplies matrices over the field,"
    " so both grow with N and not with log N. With `field.q: ntt`, which the tables' testbed does not use,"
    " encoding is a transform, whose plan has the stated exponent by construction; decoding from arbitrary U"
    " points remains a product."
)
ON = "counted operations and bytes of shadow rounds of the protocols' own machines"

TABLE_1_ENTRY = Entry(
    name="lightsecagg_table1",
    paper="LightSecAgg",
    where="Table 1",
    title="Complexity of SecAgg, SecAgg+ and LightSecAgg",
    on=ON,
    how=HOW,
    run=run_1,
    disagreement=PRODUCTS,
)

TABLE_5_ENTRY = Entry(
    name="lightsecagg_table5",
    paper="LightSecAgg",
    where="Table 5, App. C",
    title="Complexity in more detail: storage, communication, computation, decoding, PRG",
    on=ON,
    how=HOW,
    run=run_5,
    disagreement=f"{PRODUCTS} SecAgg's server computes Lagrange weights for each secret, t² operations each:"
    " N³ with a small factor; the paper has N². Two rows show the rest of that work alone; the paper has no"
    " such rows.",
)
