"""The page's table of classes of users, with the time that others waited for each as a bar."""

from collections.abc import Mapping
from typing import Any

from simfl.reports import chart
from simfl.runs.results.breakdown import PATH, class_figures
from simfl.runs.results.by_class import ClassSummary
from simfl.runs.results.summary import ProtocolSummary
from simfl.trace.rows import PHASES

MAX_ROWS = 50  # classes that are shown of a protocol


def table(protocols: Mapping[str, ProtocolSummary]) -> dict[str, Any] | None:
    """Return of each protocol a row of each class; None without classes."""
    shown = {name: p.classes for name, p in protocols.items() if p.classes}
    if not shown:
        return None
    figures = class_figures(protocols.values())
    aggregates = {name: max(1, len(protocols[name].completed)) for name in shown}
    longest = max(sum(c.waited_s.values()) / aggregates[name] for name in shown for c in shown[name].values())
    phases = [k for k in PHASES if any(c.lost[k] for classes in shown.values() for c in classes.values())]
    groups = []
    for name, classes in shown.items():
        rows = [
            {
                "class": of,
                "own": own,
                "cells": [f.text([(own, aggregates[name])]) for f in (*figures, PATH)],
                "path": _path(own, aggregates[name], longest),
            }
            for of, own in list(classes.items())[:MAX_ROWS]
        ]
        groups.append({"protocol": name, "rows": rows, "left_out": len(classes) - len(rows)})
    return {"headings": [f.label for f in figures], "phases": phases, "groups": groups}


def _path(own: ClassSummary, aggregates: int, longest: float) -> list[dict[str, Any]]:
    """Return the parts of a bar, in percent of the longest: the seconds per aggregate by phase."""
    waited = ((phase, own.waited_s[phase] / aggregates) for phase in PHASES if own.waited_s[phase])
    return chart.stacked((phase, f"{phase}: {s:.3f} s", 100 * s / longest) for phase, s in waited)
