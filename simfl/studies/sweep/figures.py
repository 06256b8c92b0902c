"""The figures of a sweep's folder."""

from pathlib import Path

from matplotlib.figure import Figure

from simfl.studies.sweep import category_figure, total_figure


def of_sweep(folder: Path) -> dict[str, Figure]:
    """Return file name -> figure: lines over a number, dots where words vary.

    Raises:
        BadInput: `means.csv` is no sweep's, or neither varies.
    """
    totals = total_figure.read(folder / "means.csv")
    if category_figure.has_words(totals):
        return {"categories": category_figure.categories(totals)}
    return {"total": total_figure.total(totals)}
