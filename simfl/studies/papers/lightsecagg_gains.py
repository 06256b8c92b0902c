"""LightSecAgg Tables 2 and 3: how much faster a round is than with SecAgg and SecAgg+, none of it fitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from simfl import profiles
from simfl.result import Result
from simfl.studies.papers.entry import Cell, Entry, Evidence, Place
from simfl.studies.papers.lightsecagg_testbed import PROTOCOLS, TABLE2, TABLE3, breakdown
from simfl.studies.papers.running import results

OTHERS = ("secagg", "secagg_plus")
KINDS = ("non-overlapped", "overlapped", "aggregation only")
UNCOUNTED = "aggregation only, without finding coefficients"
BOUND = 0.15


def gains(seconds: Mapping[str, float]) -> tuple[float, float]:
    """Over SecAgg and over SecAgg+."""
    return (
        seconds["secagg"] / seconds["lightsecagg"],
        seconds["secagg_plus"] / seconds["lightsecagg"],
    )


def coefficients_s(result: Result) -> float:
    """Seconds of a round of LightSecAgg in which coefficients are found: N U by each user, all beside each
    other, and U^2 by the server."""
    N, U = result.scenario.population.users, result.scenario.privacy.U
    return U * (N + U) * profiles.load(result.scenario.profile).seconds["mds_coefficient"]


def run_table3(place: Place) -> Evidence:
    """The gains at three bandwidths."""
    out = []
    for (mbps, printed), (_, result) in zip(TABLE3.items(), results(place.study(TABLE_3.name)), strict=True):
        ours = gains({name: breakdown(result, name)["total"] for name in PROTOCOLS})
        for other, paper, found in zip(OTHERS, printed, ours, strict=True):
            out.append(Cell(f"{mbps} Mbit/s: over {PROTOCOLS[other]}", paper, found, "x", bound=BOUND))
    return Evidence(tuple(out))


def run_table2(place: Place) -> Evidence:
    """The gains with four models."""
    out: list[Cell] = []
    totals: dict[str, dict[str, dict[str, float]]] = {}
    for point, result in results(place.study(TABLE_2.name)):
        model, parts = point["learning.model"], {name: breakdown(result, name) for name in PROTOCOLS}
        found = totals.setdefault(model, {})
        kind = KINDS[bool(point["overlap"])]
        found[kind] = {name: phases["total"] for name, phases in parts.items()}
        if not point["overlap"]:
            alone = {name: phases["total"] - phases["training"] for name, phases in parts.items()}
            found[KINDS[2]] = alone
            less = alone["lightsecagg"] - coefficients_s(result)
            found[UNCOUNTED] = {**alone, "lightsecagg": less}
    for model, found in totals.items():
        out += cells(model, {kind: gains(seconds) for kind, seconds in found.items()})
    return Evidence(tuple(out))


def cells(model: str, ours: Mapping[str, tuple[float, float]]) -> Iterator[Cell]:
    """A row of Table 2, its last column a second time, and whether LightSecAgg is the fastest and SecAgg the
    slowest."""
    d, printed = TABLE2[model]
    for kind, paper in zip((*KINDS, UNCOUNTED), (*printed, printed[-1]), strict=True):
        for other, gain, found in zip(OTHERS, paper, ours[kind], strict=True):
            solved = model != "femnist_cnn" and (kind, other) == (KINDS[0], "secagg")
            remark = "the training time is solved from it" if solved else ""
            label = f"{model}, d = {d}: {kind}, over {PROTOCOLS[other]}"
            yield Cell(label, gain, found, "x", bound=None if solved else BOUND, remark=remark)
    rising = all(ours[kind][0] > ours[kind][1] > 1 for kind in KINDS)
    said = "LightSecAgg < SecAgg+ < SecAgg"
    yield Cell(f"{model}: order", said, said if rising else "otherwise", compare="order")


TABLE_3 = Entry(
    name="lightsecagg_table3",
    paper="LightSecAgg",
    where="Table 3",
    title="Gain at three bandwidths, CNN on FEMNIST",
    on="the profile `lightsecagg_table4`, overlapped, p = 30 %; the server's link grows with the users'",
    how="No rate was fitted to it. That uploads wait for the server's link, and not for its work, is what "
    "these gains bear out: otherwise they would not fall at 98 Mbit/s.",
    run=run_table3,
)

TABLE_2 = Entry(
    name="lightsecagg_table2",
    paper="LightSecAgg",
    where="Table 2",
    title="Gain with four models",
    on="the profile `lightsecagg_table4`, p = 30 %, N = 200, on made-up data",
    how="Nothing of it was fitted but the training times of the three models that Table 4 does not have, "
    "which the paper does not print: each is solved from the first gain of its row.",
    run=run_table2,
    word="The paper's gains of the aggregation alone are the same for all d, so what its testbed spends is "
    "proportional to d. Table 4 has one d only and cannot tell: what is fitted to it has constants (sharing, "
    "reconstructing) that outweigh the rest where d is 7,850, and weigh too little where d is 5 million.",
)
