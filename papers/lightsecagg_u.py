"""LightSecAgg section 7.2, "Impact of U": the running time of a round as U goes from T to N - D."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from papers.entry import Cell, Chart, Entry, Evidence, Line, Place
from papers.lightsecagg_testbed import COEFFICIENT_S, TABLE4, coefficients
from papers.running import results

BEST = 0.7
"""What the paper found best, as a fraction of N, for p = 0.1 and p = 0.3."""
RATES = {0.1: "p = 0.1", 0.3: "p = 0.3", 0.495: "p = 0.5"}
ABOUT = 0.1
PYTHON = tuple(f"p = 0.1 and coefficients at {s * 1e6:.0f} us" for s in COEFFICIENT_S)
NEAR = 0.02
"""How much more than the least is told as near it: a round's time is flat about its best U."""
FLAT = 0.6

Curve = dict[int, dict[str, float]]
"""U -> seconds of the whole round and of its phases."""


def run(place: Place) -> Evidence:
    """The sweep over U, for the non-overlapped testbed."""
    curves: dict[float, Curve] = {rate: {} for rate in RATES}
    for point, result in results(place.study(ENTRY.name)):
        mean: dict[str, Any] = result.summary["protocols"]["lightsecagg"]["mean"]
        seconds = {"total": mean["total_s"], **mean["span_s"]}
        curves[point["dropout"]["rate"]][point["privacy"]["U"]] = seconds
    users = result.scenario.population.users
    named = {words: curves[rate] for rate, words in RATES.items()}
    charts = [_total(named, users), _phases(curves[0.1], users), _close(curves[0.1], users)]
    return Evidence(tuple(cells(curves, users)), tuple(charts))


def cells(curves: dict[float, Curve], N: int) -> list[Cell]:
    """The best U, and what 0.7 N costs, for each rate."""
    out = []
    for rate in (0.1, 0.3):
        curve = {U: seconds["total"] for U, seconds in curves[rate].items()}
        best, paper = min(curve, key=lambda U: curve[U]), round(BEST * N)
        edge = " (the largest)" if best == max(curve) else ""
        words = f"{curve[best]:.1f} s at U = {best}{edge}, {curve[paper]:.1f} s at U = {paper}"
        out.append(Cell(f"{RATES[rate]}: best U / N", BEST, best / N, bound=ABOUT, remark=words))
        near = sorted(U for U in curve if curve[U] <= (1 + NEAR) * curve[best])
        words = f"U from {near[0]} to {near[-1]} are within 2 % of the least"
        label = f"{RATES[rate]}: time at U = 0.7 N over the least"
        out.append(Cell(label, None, curve[paper] / curve[best], compare="none", remark=words))
    recovery = {U: seconds["recovery"] for U, seconds in curves[0.1].items()}
    best = min(recovery, key=lambda U: recovery[U])
    remark = "what the paper argues by: smaller symbols, of which each is harder to decode"
    label = "p = 0.1: best U / N of the recovery phase alone"
    out.append(Cell(label, BEST, best / N, bound=ABOUT, remark=remark))
    return [*out, fastest(curves), *_table4(curves, round(BEST * N)), *_supposed(curves[0.1], N)]


def fastest(curves: Mapping[float, Curve]) -> Cell:
    """The rate with the smallest running time, each with the U that is best for it."""
    least = {rate: min(seconds["total"] for seconds in curve.values()) for rate, curve in curves.items()}
    remark = ", ".join(f"{RATES[rate]}: {seconds:.1f} s" for rate, seconds in least.items())
    ours = RATES[min(least, key=lambda rate: least[rate])]
    return Cell("smallest time, each p with its best U", RATES[0.3], ours, compare="order", remark=remark)


def _table4(curves: Mapping[float, Curve], U: int) -> Iterator[Cell]:
    """What is said of the paper's U: totals of Table 4, where ours stand too."""
    low, mid = (curves[rate][U]["total"] for rate in (0.1, 0.3))
    high = min(seconds["total"] for seconds in curves[0.495].values())
    statement = "p = 0.3 at 0.7 N < p = 0.5 at N / 2 + 1"
    words = f"{mid:.1f} and {high:.1f} s"
    ours = statement if mid < high else "otherwise"
    yield Cell("order", statement, ours, compare="order", remark=words, basis="by construction")
    label = "p = 0.1 over p = 0.3, both at U = 0.7 N"
    remark = '"almost identical"'
    paper = TABLE4[False]["lightsecagg"]["total"]
    yield Cell(label, paper[0] / paper[1], low / mid, bound=NEAR, remark=remark, basis="by construction")


def in_python(curve: Curve, N: int) -> list[Curve]:
    """What a sweep would be with coefficients found as in the published implementation, by either prime."""
    added = {U: coefficients(N, U) for U in curve}
    return [{U: {"total": s["total"] + added[U][k]} for U, s in curve.items()} for k in range(len(PYTHON))]


def _supposed(curve: Curve, N: int) -> Iterator[Cell]:
    """The best U of these, shown and not judged: nothing else here is run so."""
    paper = round(BEST * N)
    for words, found in zip(PYTHON, in_python(curve, N), strict=True):
        best = min(found, key=lambda U: found[U]["total"])
        least, there = found[best]["total"], found[paper]["total"]
        remark = f"{least:.1f} s at U = {best}, {there:.1f} s at U = {paper}"
        yield Cell(f"{words}: best U / N", None, best / N, compare="none", remark=remark)


def _total(named: Mapping[str, Curve], N: int, title: str = "A round's time against U") -> Chart:
    lines = tuple(
        Line(words, tuple(U / N for U in curve), tuple(s["total"] for s in curve.values()))
        for words, curve in named.items()
    )
    return Chart(title, "U / N", "seconds", lines)


def _close(curve: Curve, N: int) -> Chart:
    """The flat part for p = 0.1, also with coefficients found in Python."""
    curves = (curve, *in_python(curve, N))
    flat = ({U: s for U, s in c.items() if U / N >= FLAT} for c in curves)
    named = dict(zip((RATES[0.1], *PYTHON), flat, strict=True))
    return _total(named, N, f"p = 0.1 from {FLAT:g} N on")


def _phases(curve: Curve, N: int) -> Chart:
    names = next(iter(curve.values()))
    lines = tuple(
        Line(name, tuple(U / N for U in curve), tuple(s[name] for s in curve.values())) for name in names
    )
    return Chart("Its phases, p = 0.1", "U / N", "seconds", lines, log_y=10)


ENTRY = Entry(
    name="lightsecagg_u",
    paper="LightSecAgg",
    where="section 7.2, impact of U",
    title='The optimal choices, "both U = ⌊0.7N⌋", for p = 0.1 and 0.3',
    on="scenarios/papers/lightsecagg_u.yaml: Table 4's testbed with its fitted profile, N = 200, modelled",
    how="The paper prints no curve. The best U must lie within 10 % of 0.7 N. For p = 0.3 that can hardly"
    " fail: 0.7 N is the largest possible U. The time at 0.7 N is shown beside the minimum, since the paper"
    ' does not state by how much it is better. "The smallest running time for the case when p = 0.3" is'
    " judged with the U that is best for each p, as the paper takes its own to be; its statements on U = 0.7"
    " N itself are totals of Table 4. The last two rows add the time that Python loops need for the code's"
    " coefficients (N U of a user, U² of the server) on a machine of that speed, for primes of 15 and of 31"
    " bits (benchmarks/published.py).",
    run=run,
    disagreement="For both rates the time falls slowly up to the largest possible U, because users code"
    " and send less: p = 0.3 meets 0.7 N as the end of its range, and p = 0.1 misses it. The recovery phase"
    " alone has its best U nearer to 0.7 N, and misses it too. So the smallest time is that of p = 0.1 and"
    " not of p = 0.3. The work for the code's coefficients grows with U and is almost free in the fitted"
    " profile. With the time of the published Python, the best U moves towards 0.7 N, and comes near it for a"
    " prime of the size of the paper's q. That does not explain the paper, since at d = 7,850 that time is"
    " several times what Table 2's gains leave for all of LightSecAgg's aggregation; the profile does not"
    " contain it. When it decodes, the published code finds fewer coefficients, (U - T) U.",
)
