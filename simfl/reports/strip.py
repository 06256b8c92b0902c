"""The strips of a page: every round's duration and outcome, and whether its timeline holds the round."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from simfl.reports import chart
from simfl.reports.folder import Run
from simfl.reports.timeline import Packed
from simfl.runs.results.round_summary import RoundSummary
from simfl.runs.results.units import seconds
from simfl.virtual_time import NS

MAX_BARS = 40_000  # of a page, about 0.6 MB; of more rounds a bar is the longest of some neighbours
BAR_PX = 28  # the most that a bar is wide, so that three rounds are no three blocks


def strips(run: Run, timelines: Mapping[str, Packed], most: int = MAX_BARS) -> dict[str, Any] | None:
    """The strips of all protocols and the axis that they share; None if no round was finished."""
    finished = {name: p.rounds for name, p in run.summary.protocols.items() if p.rounds}
    if not finished:
        return None
    each = -(-sum(map(len, finished.values())) // most)  # rounds a bar
    longest = max(map(len, finished.values()))
    slots = -(-longest // each)
    places = list(timelines)
    rows = [
        {"name": name, "place": places.index(name), "longest": max(rounds, key=lambda r: r.total_s),
         "first": rounds[0], "last": rounds[-1],
         "data": _bars(rounds, timelines[name].rounds, each, partial(run.summary.explain, name))}
        for name, rounds in finished.items()
    ]  # fmt: skip
    ticks = [int(tick) for tick in chart.axis(0, max(longest - 1, 1)).ticks if tick % 1 == 0]
    axis = [(tick, round(100 * (tick // each + 0.5) / slots, 3)) for tick in ticks if tick < longest]
    outcomes = {outcome(r) for rounds in finished.values() for r in rounds}
    shared = {"slots": slots, "axis": axis, "width": slots * BAR_PX, "outcomes": outcomes}
    return {"rows": rows, "each": each, **shared}


def outcome(r: RoundSummary) -> str:
    """Return completed, skipped if nobody was selected, or failed."""
    return "completed" if r.completed else "failed" if r.selected else "skipped"


def duration(r: RoundSummary) -> str:
    return seconds(r.total_s * NS)


def _bars(
    rounds: Sequence[RoundSummary], held: set[int], each: int, explain: Callable[[str], str]
) -> dict[str, Any]:
    """Columns with an entry a bar: the number of its round, microseconds, the first letter of its outcome, 1
    if the timeline holds it; and the reasons, each once, of the bars of rounds that were not completed."""
    shown = [max(rounds[k : k + each], key=lambda r: r.total_s) for k in range(0, len(rounds), each)]
    reasons = {r.reason or "": None for r in shown if not r.completed}
    numbers = {reason: number for number, reason in enumerate(reasons)}
    return {
        "round": [r.index for r in shown],
        "us": [round(r.total_s * 1e6) for r in shown],
        "outcome": "".join(outcome(r)[0] for r in shown),
        "held": "".join(str(int(r.index in held)) for r in shown),
        "reasons": [explain(reason) for reason in reasons],
        "why": [[bar, numbers[r.reason or ""]] for bar, r in enumerate(shown) if not r.completed],
    }
