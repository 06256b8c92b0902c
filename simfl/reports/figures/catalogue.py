"""A run's figures, and files of any figure, as SVG and PNG for a paper (`simfl[figures]`).

Invariant: the same run gives the same bytes, without a date or a random id
(`test_the_same_run_gives_the_same_bytes_whatever_the_settings`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from simfl.reports.figures import run_figures, timing
from simfl.reports.figures.style import style
from simfl.reports.folder import Run
from simfl.runs.folder.disk import atomic

DOTS_PER_INCH = 200
"""Resolution of PNG files."""
KINDS: dict[str, dict[str, None]] = {"svg": {"Date": None}, "png": {"Software": None}}
"""Kinds of file, with the metadata that each leaves out, to be the same each time."""


def of_run(run: Run) -> dict[str, Figure]:
    """Return the figures for which a run has data, by file name."""
    drawn = {
        "breakdown": run_figures.breakdown(run),
        **{f"timing_{k}" if k > 1 else "timing": f for k, f in enumerate(timing.timing(run), 1)},
        "accuracy": run_figures.accuracy(run),
        "staleness": run_figures.staleness(run),
        "participation": run_figures.participation(run),
    }
    return {name: figure for name, figure in drawn.items() if figure is not None}


def save(folder: Path, figures: Mapping[str, Figure], kinds: Sequence[str] = tuple(KINDS)) -> list[str]:
    """Write each figure in these kinds of file into `folder`, which is created; return the names of files."""
    folder.mkdir(exist_ok=True)
    names = []
    for name, figure in figures.items():
        for kind in kinds:
            with style(), atomic(folder / f"{name}.{kind}", binary=True) as file:
                figure.savefig(file, format=kind, dpi=DOTS_PER_INCH, metadata=KINDS[kind])
            names.append(f"{name}.{kind}")
    return names
