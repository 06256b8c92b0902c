"""LightSecAgg Table 4: a round's phases, those that the profile was fitted to and those that it was not."""

from __future__ import annotations

from collections.abc import Iterator

from papers.entry import Cell, Entry, Evidence, Place
from papers.fit_table4 import SEEN
from papers.lightsecagg_testbed import PROTOCOLS, RATES, TABLE4, breakdown
from papers.running import results

FITTED, PREDICTED = 0.05, 0.1
"""How far a cell may be off, as a part of its column's total."""

Seconds = dict[str, dict[str, float]]
"""Protocol -> phase -> seconds."""


def run(place: Place) -> Evidence:
    """All six columns."""
    out: list[Cell] = []
    for point, result in results(place.study(ENTRY.name)):
        p = next(p for p in RATES if abs(p - point["dropout"]["rate"]) < 0.01)
        ours = {name: breakdown(result, name) for name in PROTOCOLS}
        out += cells(ours, p, bool(point["overlap"]))
    return Evidence(tuple(out))


def cells(ours: Seconds, p: float, overlap: bool) -> Iterator[Cell]:
    """A column: each cell with its bound, and the order of the protocols."""
    fitted = p in SEEN and not overlap
    column = f"{'overlapped' if overlap else 'non-overlapped'}, p = {p:.0%}"
    paper = {name: {phase: s[RATES.index(p)] for phase, s in TABLE4[overlap][name].items()} for name in ours}
    for name, phases in ours.items():
        total = paper[name]["total"]
        for phase, seconds in phases.items():
            printed = paper[name][phase]
            bound = (FITTED if fitted else PREDICTED) * total / printed
            part = f"{(seconds - printed) / total:+.1%} of the total"
            remark = f"{'fitted' if fitted else 'predicted'}, {part}"
            yield Cell(
                f"{column}: {PROTOCOLS[name]}, {phase}", printed, seconds, "s", bound=bound, remark=remark
            )
    yield Cell(f"{column}: order", order(paper), order(ours), compare="order")


def order(seconds: Seconds) -> str:
    """The protocols from the fastest to the slowest."""
    return " < ".join(PROTOCOLS[name] for name in sorted(seconds, key=lambda name: seconds[name]["total"]))


ENTRY = Entry(
    name="lightsecagg_table4",
    paper="LightSecAgg",
    where="Table 4",
    title="Phases of a round, CNN on FEMNIST, N = 200",
    on="the profile `lightsecagg_table4`, which `papers.fit_table4` fits to the columns "
    "p = 10 % and 50 % of the non-overlapped half (six rates, the server's link, the training's time); the "
    "other four are predictions",
    how="A cell agrees if it is within 5 % (fitted) or 10 % (predicted) of its column's total. At p = 50 % "
    "the paper loses 100 users and has U = 101, which must survive: 99 are lost here. "
    "Readings of the paper and no parameters: shares go from user to user, all masks of who was lost are "
    "expanded, training includes the model's download. That uploads wait for a link that grows with the "
    "users' bandwidth was chosen knowing Table 3.",
    run=run,
    word="LightSecAgg's upload and recovery grow more from p = 30 % to 50 % in the paper than what is sent "
    "and added explains: there users who are lost go on sending, here they do not. The masks of SecAgg are "
    "part of its offline phase in the paper, and of the upload here. Most of the offline phase is a constant "
    "that all protocols share, which the paper does not explain, nor does the model.",
)
