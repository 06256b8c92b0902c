"""The breakdown of a run as a small HTML table, which notebooks show for a result."""

from html import escape

from simfl.runs.results.columns import Place, at
from simfl.runs.results.summary import Summary
from simfl.trace.rows import unit

PLACES: tuple[Place, ...] = ("time", "rates", "path", "run")
RULE = "border-top:1px solid currentColor"
LEFT = "text-align:left;padding:2px 8px"
RIGHT = "text-align:right;padding:2px 8px"
FAULT = ";color:#c62828"  # to be read on white and on a dark page


def breakdown(summary: Summary) -> str:
    """Return the table: what the terminal prints, without its parts by drop-out rate and class.

    Invariant: each text of the scenario is escaped.
    """
    entries = list(summary.protocols.values())
    noisy = summary.clock != "modelled"
    heads = "".join(f'<th style="{RIGHT}">{escape(name)}</th>' for name in summary.protocols)
    lines = [f'<thead><tr><th style="{LEFT}"></th>{heads}</tr></thead>']
    for place in PLACES:
        rows: list[str] = []
        for column in at(place, entries):
            if column.rare and not any(map(column.tells, entries)):
                continue
            texts = [(column.text(p, spread=noisy), FAULT * column.wrong(p)) for p in entries]
            cells = "".join(f'<td style="{RIGHT}{style}">{escape(t)}</td>' for t, style in texts)
            rule = "" if rows else RULE
            name = escape(getattr(column, place).strip())
            rows.append(f'<tr style="{rule}"><th style="{LEFT};font-weight:normal">{name}</th>{cells}</tr>')
        lines.append(f"<tbody>{''.join(rows)}</tbody>")
    rounds = unit(any(p.buffered for p in entries))
    state = " (interrupted)" * summary.interrupted
    title = f"{summary.scenario}{state}: seconds of virtual time, means of completed {rounds}s"
    caption = f'<caption style="{LEFT};caption-side:top">{escape(title)}</caption>'
    table = 'style="border-collapse:collapse;font-variant-numeric:tabular-nums"'
    return f"<table {table}>{caption}{''.join(lines)}</table>"
