"""The section of a page on those who took part: T, F and C (Multi-RoundSecAgg, section 3.2)."""

from collections.abc import Sequence
from typing import Any

from simfl.reports.folder import Run
from simfl.reports.model import Report
from simfl.runs.results.breakdown import ReportTable


def participation(run: Run, report: Report) -> dict[str, Any] | None:
    """Return the report's table of the protocols with a selection, and T over their rounds; None without."""
    table = next((part for part in report.parts if isinstance(part, ReportTable) and part.across), None)
    if table is None:
        return None
    shares = [found for p in run.summary.protocols.values() if (found := p.chosen)]
    # where the search for weak T ended early, the lower end is what is known to hold
    curves = [([T[0] if T else None for T in found.T_weak], found.T_strong) for found in shares]
    most = max((T for both in curves for values in both for T in values if T), default=1)
    return {"table": table, "curves": curves, "most": most, "sets": report.on("sets")}


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
