"""The breakdown of a run as a small HTML table, which notebooks show for a result."""

from html import escape

from simfl.runs.results.breakdown import breakdown
from simfl.runs.results.summary import Summary
from simfl.trace.rows import unit

RULE = "border-top:1px solid currentColor"
LEFT = "text-align:left;padding:2px 8px"
RIGHT = "text-align:right;padding:2px 8px"
FAULT = ";color:#c62828"
"""Legible on a white and on a dark page."""
NO_VALUE = "-"


def table(summary: Summary) -> str:
    """Return the breakdown that the terminal prints as an HTML table.

    Invariant: each text of the scenario is escaped (`test_text_of_a_scenario_is_escaped`).
    """
    runs = {name: [entry] for name, entry in summary.protocols.items()}
    # Modelled times have no noise, so they have no interval.
    shown = breakdown(runs, summary.clock != "modelled", summary.same_rounds)
    heads = "".join(f'<th style="{RIGHT}">{escape(name)}</th>' for name in shown.names)
    lines = [f'<thead><tr><th style="{LEFT}"></th>{heads}</tr></thead>']
    for section in shown.sections:
        rows: list[str] = []
        for row in section:
            # The head of a row is bold unless its style is set.
            weight = "" if row.is_bold else ";font-weight:normal"
            cells = "".join(
                f'<td style="{RIGHT}{FAULT * cell.is_fault}">{escape(cell.text or NO_VALUE)}</td>'
                for cell in row.cells
            )
            # Leading spaces indent a label on a terminal only.
            label = f'<th style="{LEFT}{weight}">{escape(row.label.strip())}</th>'
            rows.append(f'<tr style="{"" if rows else RULE}">{label}{cells}</tr>')
        lines.append(f"<tbody>{''.join(rows)}</tbody>")
    rounds = unit(any(p.buffered for p in summary.protocols.values()))
    state = " (interrupted)" * summary.interrupted
    title = f"{summary.scenario}{state}: seconds of virtual time, means of completed {rounds}s"
    caption = f'<caption style="{LEFT};caption-side:top">{escape(title)}</caption>'
    style = 'style="border-collapse:collapse;font-variant-numeric:tabular-nums"'
    return f"<table {style}>{caption}{''.join(lines)}</table>"
