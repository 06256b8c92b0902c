"""`report.html` of a sweep: best points, the Pareto front, plots over each axis, heat maps of two axes.

Like a run's page it is one file without network requests; `reports/page.py` has the invariant on its text.
"""

from typing import Any

from simfl.reports import chart
from simfl.reports.page import environment
from simfl.runs.results.columns import Column
from simfl.studies.sweep.picture import Entry, Picture, best, by_circumstances, front, widest

MAX_FRONT = 40
"""Entries of the front that are listed."""


def page(picture: Picture) -> str:
    """Return the page of a sweep, as HTML."""
    protocols = list(dict.fromkeys(e.protocol for e in picture.entries))
    worlds = by_circumstances(picture.entries)
    ahead = [entry for entries in worlds.values() for entry in front(entries)]
    return environment().get_template("sweep.html").render(
        sweep=picture,
        protocols=protocols,
        worlds=[where for where in worlds if where],
        best=[(heading(c), e, value.text(*c.form)) for c, e, value in best(picture)],
        front=[(e, e.means["per_aggregate_s", ""]) for e in ahead[:MAX_FRONT]],
        more=max(0, len(ahead) - MAX_FRONT),
        scatter=_scatter(picture, ahead),
        lines=[chart.line(k) for k in range(len(protocols))],
        data=_data(picture, protocols),
    )  # fmt: skip


def heading(column: Column) -> str:
    """Return the name of a measure on the page.

    >>> from simfl.runs.results.columns import COLUMNS
    >>> heading(COLUMNS[0])
    'per aggregate, s'
    """
    name = f"span of {column.phase}" if column.key == "span_s" else column.name
    return name + (", s" if column.key.endswith("_s") else "")


def _scatter(picture: Picture, ahead: list[Entry]) -> dict[str, Any] | None:
    """Return the chart of time against bytes per aggregate; None without an aggregate.

    Its points are in percent of the chart, from its left and from its top.
    """
    measured = [(e, e.mean("per_aggregate_s"), e.megabytes) for e in picture.entries]
    points = [(e, s, mb) for e, s, mb in measured if s is not None and mb is not None]
    if not points:
        return None
    across = chart.axis(0.0, max(s for _, s, _ in points))
    up = chart.axis(0.0, max(mb for _, _, mb in points))
    protocols = list(dict.fromkeys(e.protocol for e in picture.entries))
    dots = [
        {
            "x": round(across.at(s), 3),
            "y": round(100 - up.at(mb), 3),
            "protocol": protocols.index(e.protocol),
            "ahead": e in ahead,
            "text": f"{e.protocol}{', ' * bool(e.label)}{e.label}: {s:.3f} s, {mb:.3f} MB, T = {e.T}",
        }
        for e, s, mb in points
    ]
    return {"across": across, "up": up, "dots": dots}


def _data(picture: Picture, protocols: list[str]) -> dict[str, Any]:
    """Return the data of the page's plots: mean and half interval of each measure, entry by entry."""
    shown = [c for c in picture.measures if len({e.mean(*c.measure) for e in picture.entries}) > 1]
    return {
        "axes": [{"label": axis.label, "values": list(axis.values)} for axis in picture.axes],
        "protocols": protocols,
        "lines": [chart.line(k) for k in range(len(protocols))],
        "measures": [heading(c) for c in shown],
        "entries": [
            {
                "protocol": protocols.index(e.protocol),
                "at": picture.places[e.point],
                "folder": e.folder,
                "label": e.label,
                "values": [_pair(e, c) for c in shown],
            }
            for e in picture.entries
        ],
        "pair": widest(picture) if picture.axes else None,
    }


def _pair(entry: Entry, column: Column) -> list[float | None] | None:
    value = entry.means.get(column.measure)
    if value is None:
        return None
    scale = column.form.scale
    return [value.mean / scale, None if value.half is None else value.half / scale]
