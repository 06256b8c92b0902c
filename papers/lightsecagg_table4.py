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
    how="A cell agrees if its error is within 5 % (fitted) or 10 % (predicted) of its column's total. At p"
    " = 50 % the paper loses 100 of 200 users although U = 101 must survive; 99 are lost here. Three"
    " choices are readings of the paper: shares go from user to user, the server expands all masks of lost"
    " users, training includes the model's download. A fourth was made with Table 3 in view: uploads wait"
    " for a server link that grows with the users' bandwidth.",
    run=run,
    disagreement="From p = 30 % to 50 %, LightSecAgg's upload and recovery grow more in the paper than the"
    " bytes and additions explain: the paper's lost users go on sending, ours stop. The paper expands"
    " SecAgg's masks offline; our machine expands them in the upload. Most of the offline phase is a"
    " constant common to all protocols, which neither the paper nor the profile explains.",
)
