"""The figures of `Result.plot`, as of `simfl report --figures`, of a result that need not be on disk."""

from pathlib import Path
from typing import Any

from simfl.errors import BadInput, did_you_mean, need
from simfl.reports.folder import LIVE, Run
from simfl.runs.folder.result import Result


def plot(result: Result, kind: str) -> Any:
    """Return the first figure of a kind; arguments and errors as of `Result.plot`."""
    need("plot", "matplotlib.figure", "figures")
    from simfl.reports.figures.catalogue import DRAWN, drawn

    if kind not in DRAWN:
        names = f"kind must be one of {', '.join(DRAWN)}, not {kind!r:.80}"
        raise BadInput(f"plot: {names}{did_you_mean(kind, DRAWN)}")
    rounds, time = result.rounds, "real" if LIVE in result.beside else "virtual"
    # A figure reads neither folder nor text, so a result in memory needs none.
    run = Run(Path(), result.scenario, "", result.summarised(rounds), result.traces, rounds, time)
    if not (figures := drawn(run, kind)):
        raise BadInput(f"plot: {kind}: this run has nothing to draw; it needs {NEEDS[kind]}")
    return figures[0]


NEEDS = {
    "breakdown": "an aggregate",
    "timing": "a completed round",
    "accuracy": "an evaluation, which payload shadow has not",
    "staleness": "an asynchronous protocol",
    "participation": "a selection of some users",
}
"""Kind -> what a run must have to be drawn."""

# A result stands below reports, which it may not import; `simfl/__init__.py` imports this module with it.
Result._drawn_by = plot
