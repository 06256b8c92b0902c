"""LightSecAgg Table 4: a round's phases, those that the profile was fitted to and those that it was not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from papers.entry import Basis, Cell, Entry, Evidence, Place
from papers.fit_table4 import SEEN
from papers.lightsecagg_testbed import PROTOCOLS, RATES, TABLE4, breakdown
from papers.running import results

BOUND = 0.15
"""How far each cell may be off, relative to itself."""
ROUNDED_S = 1.0
"""Seconds by which a printed total may differ from the sum of its phases; six differ by 5 to 10."""
PRIVATE = "secagg_plus_private"
"""The study's SecAgg+ whose k and t are those that T = N / 2 needs."""

Seconds = dict[str, dict[str, float]]
"""Protocol -> phase -> seconds."""


def run(place: Place) -> Evidence:
    """All six columns."""
    out: list[Cell] = []
    for point, result in results(place.study(ENTRY.name)):
        p = next(p for p in RATES if abs(p - point["dropout"]["rate"]) < 0.01)
        overlap = bool(point["overlap"])
        out += cells({name: breakdown(result, name) for name in PROTOCOLS}, p, overlap)
        params = result.scenario.params(PRIVATE)
        out += beside(breakdown(result, PRIVATE), p, overlap, f"k = {params.k}, t = {params.t}")
    return Evidence(tuple(out))


def column(p: float, overlap: bool) -> str:
    return f"{'overlapped' if overlap else 'non-overlapped'}, p = {p:.0%}"


def cells(ours: Seconds, p: float, overlap: bool) -> Iterator[Cell]:
    """A column: its phases, and the totals and their order, which follow from the phases."""
    paper = {name: {phase: s[RATES.index(p)] for phase, s in TABLE4[overlap][name].items()} for name in ours}
    for name, phases in ours.items():
        for phase, seconds in phases.items():
            label, printed = f"{column(p, overlap)}: {PROTOCOLS[name]}, {phase}", paper[name][phase]
            if phase == "total":
                yield total(label, paper[name], seconds)
            else:
                basis = basis_of(phase, p, overlap)
                yield Cell(label, printed, seconds, "s", bound=BOUND, basis=basis)
    statement = order(paper)
    yield Cell(
        f"{column(p, overlap)}: order", statement, order(ours), compare="order", basis="by construction"
    )


def basis_of(phase: str, p: float, overlap: bool) -> Basis:
    """The training time is one number, printed for each p, so it is fitted in every column that has it.

    Overlap moves the offline phase alone: what follows it is the other half's, cell by cell."""
    if overlap:
        if phase != "offline":
            return "by construction"
        return "fitted" if p == RATES[0] else "predicted"  # the link out
    return "fitted" if p in SEEN or phase == "training" else "predicted"


def total(label: str, printed: Mapping[str, float], seconds: float) -> Cell:
    """A total, which is judged unless the paper's is not the sum of its phases."""
    summed = sum(s for phase, s in printed.items() if phase != "total")
    cell = Cell(label, printed["total"], seconds, "s", bound=BOUND, basis="by construction")
    if abs(summed - printed["total"]) <= ROUNDED_S:
        return cell
    remark = f"the printed phases add up to {summed:.1f} s: {100 * (seconds / summed - 1):+.1f} %"
    return Cell(label, printed["total"], seconds, "s", remark=remark)


def beside(phases: Mapping[str, float], p: float, overlap: bool, graph: str) -> Iterator[Cell]:
    """SecAgg+ as T = N / 2 needs it, of which the paper has no times."""
    for phase in ("offline", "upload", "recovery", "total"):
        label = f"{column(p, overlap)}: SecAgg+ with {graph}, {phase}"
        yield Cell(label, None, phases[phase], "s", "none", remark="private against T = N / 2")


def order(seconds: Seconds) -> str:
    """The protocols from the fastest to the slowest."""
    return " < ".join(PROTOCOLS[name] for name in sorted(seconds, key=lambda name: seconds[name]["total"]))


ENTRY = Entry(
    name="lightsecagg_table4",
    paper="LightSecAgg",
    where="Table 4",
    title="Phases of a round, CNN on FEMNIST, N = 200",
    on="the profile `lightsecagg_table4`, which `papers.fit_table4` fits to the phases of the columns"
    " p = 10 % and 50 % of the non-overlapped half (eight rates, the server's link in) and to the overlapped"
    " offline phases at p = 10 % (its link out); the others are predictions, except for the training time,"
    " which is one number in all columns",
    how="Each cell must lie within 15 % of the printed one. Totals and their order follow from the phases. A"
    " printed total that is not the sum of its phases is neither fitted nor judged; the remark has the sum."
    " At p = 50 % the paper loses 100 of 200 users although U = 101 must survive; 99 are lost here. Users are"
    ' lost as the paper has it, "after uploading": their uploads arrive in full and are not counted. Four'
    " choices are readings of the paper: shares go from user to user; the server expands all masks of lost"
    " users; training includes the model's download; uploads wait for a server's link that grows with the"
    " users' bandwidth, which was chosen with Table 3 in view. The uploads and recoveries of the overlapped"
    " half are those of the other half, by construction. Of the predicted cells only the recoveries of p = 30"
    " % and LightSecAgg's overlapped offline phase of p = 50 % are no repetition of a fitted one: offline"
    " phases and uploads depend on p only by way of U.",
    run=run,
    disagreement="From p = 30 % to 50 %, LightSecAgg's upload and recovery grow more in the paper than their"
    " bytes and additions explain. No rate of the profile lengthens the uploads of one column alone; the"
    " constant of LightSecAgg's recovery is a compromise between columns. Training is printed as the same"
    " time under all protocols; here a SecAgg user downloads the model while it makes its masks, others do"
    " after theirs. Most of the offline phase is a constant common to all protocols, which neither the paper"
    " nor the profile explains. SecAgg+ has k = 20, which is the ratio of the slopes of the two recoveries,"
    " and t = 3, so that a round with half of the neighbours lost ends: it has no guarantee"
    " against T = N / 2, the setting that section 7.1 gives for all protocols. SecAgg+ with the k and t that"
    " this setting needs runs beside it.",
)
