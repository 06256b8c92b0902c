"""A run's figures, and files of any figure, as SVG and PNG for a paper (`simfl[figures]`).

Invariant: the same run gives the same bytes, without a date or a random id
(`test_the_same_run_gives_the_same_bytes_whatever_the_settings`).
"""

from collections.abc import Callable, Mapping, Sequence
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


DRAWN: dict[str, Callable[[Run], Figure | list[Figure] | None]] = {
    "breakdown": run_figures.breakdown,
    "timing": timing.timing,
    "accuracy": run_figures.accuracy,
    "staleness": run_figures.staleness,
    "participation": run_figures.participation,
}
"""Kind of figure -> what draws it; one that needs several pages is a list."""


def drawn(run: Run, kind: str) -> list[Figure]:
    """Return the figures of a kind of `DRAWN`; none if the run has no data for it."""
    figure = DRAWN[kind](run)
    return figure if isinstance(figure, list) else [figure] if figure else []


def of_run(run: Run) -> dict[str, Figure]:
    """Return the figures for which a run has data, by file name."""
    return {f"{kind}_{k}" if k > 1 else kind: f for kind in DRAWN for k, f in enumerate(drawn(run, kind), 1)}


def save(folder: Path, figures: Mapping[str, Figure], kinds: Sequence[str] = tuple(KINDS)) -> list[str]:
    """Write each figure in these kinds of file into `folder`, which is created; return the names of files."""
    folder.mkdir(exist_ok=True)
    names = []
    for name, figure in figures.items():
        for kind in kinds:
            # The style again: fonts and ids are decided when a figure is saved.
            with style(), atomic(folder / f"{name}.{kind}", binary=True) as file:
                figure.savefig(file, format=kind, dpi=DOTS_PER_INCH, metadata=KINDS[kind])
            names.append(f"{name}.{kind}")
    return names
