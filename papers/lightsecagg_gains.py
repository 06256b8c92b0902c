"""LightSecAgg Tables 2 and 3: how much faster a round is than with SecAgg and SecAgg+, none of it fitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from papers.entry import Cell, Entry, Evidence, Place
from papers.lightsecagg_testbed import PROTOCOLS, TABLE2, TABLE3, breakdown, coefficients
from papers.running import results
from simfl.scenario.schema import Scenario

OTHERS = ("secagg", "secagg_plus")
KINDS = ("non-overlapped", "overlapped", "aggregation only")
BOUND = 0.15


def gains(seconds: Mapping[str, float]) -> tuple[float, float]:
    """Over SecAgg and over SecAgg+."""
    return (
        seconds["secagg"] / seconds["lightsecagg"],
        seconds["secagg_plus"] / seconds["lightsecagg"],
    )


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
    for model, found in totals.items():
        out += cells(model, {kind: gains(found[kind]) for kind in KINDS})
        out.append(room(model, found[KINDS[2]]["lightsecagg"], result.scenario))
    return Evidence(tuple(out))


def cells(model: str, ours: Mapping[str, tuple[float, float]]) -> Iterator[Cell]:
    """A row of Table 2, and whether LightSecAgg is the fastest and SecAgg the slowest."""
    d, printed = TABLE2[model]
    for kind, paper in zip(KINDS, printed, strict=True):
        for other, gain, found in zip(OTHERS, paper, ours[kind], strict=True):
            solved = model != "femnist_cnn" and (kind, other) == (KINDS[0], "secagg")
            remark = "the training time is solved from it" if solved else ""
            label = f"{model}, d = {d}: {kind}, over {PROTOCOLS[other]}"
            yield Cell(label, gain, found, "x", bound=None if solved else BOUND, remark=remark)
    rising = all(over_secagg > over_plus > 1 for over_secagg, over_plus in ours.values())
    said = "LightSecAgg < SecAgg+ < SecAgg"
    yield Cell(f"{model}: order", said, said if rising else "otherwise", compare="order")


def room(model: str, seconds: float, scenario: Scenario) -> Cell:
    """LightSecAgg's aggregation beside what finding coefficients in Python would add to it."""
    assert scenario.privacy is not None
    assert scenario.privacy.U is not None
    low, high = coefficients(scenario.population.users, scenario.privacy.U)
    remark = f"coefficients found in Python, each round anew, would add {low:.1f} to {high:.1f} s"
    return Cell(f"{model}: LightSecAgg's aggregation alone", None, seconds, "s", "none", remark=remark)


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
    on="the profile `lightsecagg_table4` and the three that are made of it for the other models, p = 30 %, "
    "N = 200, on made-up data",
    how="Nothing of it was fitted but the training times of the three models that Table 4 does not have, "
    "which the paper does not print: each is solved from the first gain of its row. Whether a rate is a "
    "constant or one per element Table 4, with its one d, does not tell; section 7.2 does, where the gain of "
    "the aggregation alone remains the same for all d: so what was fitted as a constant is in proportion to "
    "d here. A gain is to be within 15 %.",
    run=run_table2,
    word="That the aggregation alone gains about the same for all d is how the constants were read; what it "
    "gains, and what is gained with training, is not. Overlapped, the three models whose training was solved "
    "gain more than in the paper, for which these tables tell no cause. Where d is 7,850 the paper's gains "
    "leave room for work that does not grow with d, such as finding the code's coefficients in Python, only "
    "if SecAgg and SecAgg+ had as many times more of it: none is in the profiles (see the impact of U).",
)
