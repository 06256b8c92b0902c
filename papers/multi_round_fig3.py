"""Multi-RoundSecAgg Figs 3 and 4: T, F and C of the six schemes, round by round."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from papers.entry import Cell, Chart, Entry, Evidence, Line, Place
from papers.running import results

N = 120
SCHEMES = {
    "random": "Random",
    "weighted": "Weighted Random",
    "partition": "Partition",
    "batches_6": "Multi-RoundSecAgg (T = 6)",
    "batches_4": "Multi-RoundSecAgg (T = 4)",
    "batches_3": "Multi-RoundSecAgg (T = 3)",
}
"""Entry of the scenario -> the paper's name."""
KEPT = {"partition": 12, "batches_6": 6, "batches_4": 4, "batches_3": 3}
"""The guarantee of each scheme that has one (section 6)."""

Shares = dict[str, Any]


def run(place: Place) -> Evidence:
    """The study's T(t), F(t), C(t), and what the paper says of them."""
    seeds = [
        {name: entry["participation"] for name, entry in result.summary["protocols"].items()}
        for _, result in results(place.study("multi_round_fig3"))
    ]
    return Evidence((*privacy(seeds), *tradeoff(seeds)), (*curves(seeds[0]), _fig_4(seeds)))


def privacy(seeds: list[dict[str, Shares]]) -> list[Cell]:
    """Fig. 3(a): where T falls to 1, and where it stays."""
    cells = []
    for name in ("random", "weighted"):
        falls = [next((t for t, T in enumerate(s[name]["T_weak"], 1) if T == [1, 1]), None) for s in seeds]
        statement = "T = 1 after about N rounds"
        if all(t is not None and 0.9 * N <= t <= 1.2 * N for t in falls):
            ours = statement
        else:
            ours = f"T = 1 after {falls} rounds"
        words = f"first at round {', '.join(map(str, falls))} of seeds in turn; about N: 0.9 N to 1.2 N"
        cells.append(Cell(f"Fig. 3(a), {SCHEMES[name]}", statement, ours, compare="order", remark=words))
    for name, T in KEPT.items():
        lows = [min(low for low, _ in filter(None, s[name]["T_weak"])) for s in seeds]
        strong = [min(filter(None, s[name]["T_strong"])) for s in seeds]
        ours = f"T >= {min(lows)} in all rounds"
        words = f"strong definition: T >= {min(strong)}; all seeds"
        cells.append(
            Cell(
                f"Fig. 3(a), {SCHEMES[name]}",
                f"T >= {T} in all rounds",
                ours,
                compare="order",
                remark=words,
                basis="by construction",  # a scheme chooses whole batches of T
            )
        )
    return cells


def tradeoff(seeds: list[dict[str, Shares]]) -> list[Cell]:
    """Figs 3(b), 3(c) and 4: fairness gaps and cardinalities after the last round."""

    def last(what: str, name: str) -> float:
        return fmean(s[name][what][-1] for s in seeds)

    cells = [
        Cell(f"{figure}, {words}", None, last(what, name), unit, "none")
        for figure, what, unit in (("F, Fig. 3(b)", "F", ""), ("C, Figs 3(c) and 4", "C", "users"))
        for name, words in SCHEMES.items()
    ]
    for T in (6, 4, 3):
        statement = f"T = {T} below random"
        ours = statement if last("F", f"batches_{T}") < last("F", "random") else "otherwise"
        cells.append(Cell("Fig. 3(b), fairness gap", statement, ours, compare="order"))
    means = [last("C", name) for name in SCHEMES]
    statement = "partition smallest"
    ours = statement if last("C", "partition") == min(means) else "otherwise"
    cells.append(Cell("Fig. 3(c), cardinality", statement, ours, compare="order"))
    statement = "T = 3 and T = 4 almost that of random"
    near = all(last("C", name) >= 0.95 * last("C", "random") for name in ("batches_3", "batches_4"))
    ours = statement if near else "otherwise"
    cells.append(Cell("Fig. 4, cardinality", statement, ours, compare="order", remark="almost: within 5 %"))
    return cells


def curves(seed: dict[str, Shares]) -> list[Chart]:
    """Fig. 3 (a), (b), (c) of one seed; T as far as it is known exactly, at its lower bound elsewhere."""
    charts = []
    for what, title in (
        ("T", "Fig. 3(a): multi-round privacy"),
        ("F", "Fig. 3(b): fairness gap"),
        ("C", "Fig. 3(c): cardinality"),
    ):
        lines = []
        for name, words in SCHEMES.items():
            values = [T and T[0] for T in seed[name]["T_weak"]] if what == "T" else seed[name][what]
            points = [(float(t), float(v)) for t, v in enumerate(values, 1) if v is not None]
            lines.append(Line(words, *(tuple(axis) for axis in zip(*points, strict=True))))
        charts.append(Chart(title, "round t", f"{what}(t)", tuple(lines)))
    return charts


def _fig_4(seeds: list[dict[str, Shares]]) -> Chart:
    kept = {"random": 1, **dict(reversed(KEPT.items()))}
    cardinalities = tuple(fmean(s[name]["C"][-1] for s in seeds) for name in kept)
    line = Line("C after the last round", tuple(map(float, kept.values())), cardinalities)
    return Chart("Fig. 4: privacy against cardinality", "T", "C, users", (line,))


ENTRY = Entry(
    name="multi_round_fig3",
    paper="Multi-RoundSecAgg",
    where="Figs 3 and 4",
    title="Key metrics of the six schemes, N = 120, K = 12",
    on="scenarios/papers/multi_round_fig3.yaml: p_i from {0.1 .. 0.5} as in section 6, 400 rounds of three"
    " seeds, without training; the paper's axis ends at 200",
    how="The paper prints curves without numbers. The statements of its text are judged.",
    run=run,
)
