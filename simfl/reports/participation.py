"""The section of a page on those who took part: T, F and C (Multi-RoundSecAgg, section 3.2)."""

from collections.abc import Sequence
from typing import Any

from simfl.reports.folder import Run
from simfl.reports.tables import NO_VALUE
from simfl.reports.units import whole
from simfl.runs.results.columns import at


def participation(run: Run) -> dict[str, Any] | None:
    """The table of the protocols with a selection, and T over their rounds; None if all select everybody."""
    chosen = [(name, p, found) for name, p in run.summary.protocols.items() if (found := p.chosen)]
    if not chosen:
        return None
    columns = at("seeds", [p for _, p, _ in chosen])
    rows: list[dict[str, Any]] = []
    for name, p, found in chosen:
        # where the search for weak T ended early, the lower end is what is known to hold
        weak = [T[0] if T else None for T in found.T_weak]
        cells = [column.over_seeds([p]) for column in columns]
        sets = NO_VALUE if found.family is None else whole(found.family)
        rows.append({"name": name, "cells": cells, "sets": sets, "T": (weak, found.T_strong)})
    most = max((T for row in rows for values in row["T"] for T in values if T), default=1)
    return {"headings": [column.seeds for column in columns], "rows": rows, "most": most}


def steps(values: Sequence[int | None], most: int) -> str:
    """The path of a step curve, a unit a value to the right, and `most` down to 0; None is a gap.

    >>> steps([None, 3, 3, 1], 3)
    'M1 0H3V2H4'
    """
    path, before = "", None
    for place, value in enumerate(values):
        if value != before:
            path += f"H{place}" if before is not None else ""
            if value is not None:
                path += f"V{most - value}" if before is not None else f"M{place} {most - value}"
        before = value
    return path + f"H{len(values)}" * (before is not None)
