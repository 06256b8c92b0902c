"""The breakdown of a run as a LaTeX table (package booktabs), for a paper."""

from __future__ import annotations

from itertools import groupby

from simfl.reports import tables
from simfl.reports.folder import Run
from simfl.results.columns import Column, at

SIGNS = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_",
    "%": r"\%", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}",
}  # fmt: skip
"""What LaTeX would take for something else."""


def escape(text: str) -> str:
    """Text that LaTeX sets as it is; line ends and other control signs become spaces."""
    return "".join(SIGNS.get(sign, sign if sign.isprintable() else " ") for sign in text)


def table(run: Run) -> str:
    """A `tabular` with a row for each protocol and drop-out rate, means over its completed rounds.

    Seconds are spans, which overlap and so need not add up to the total; bytes are of all users together;
    the accuracy is the last one of the protocol. Columns that the run has nothing for are left out.
    """
    rows, protocols = tables.breakdown(run), run.summary.protocols
    shown = [
        c for c in at("latex", protocols.values()) if not c.whole or any(map(c.tells, protocols.values()))
    ]
    left = ["Protocol", *["Lost"] * any(row["rate"] is not None for row in rows)]
    above, rules = _units(shown, run.unit, len(left))
    lines = [
        f"% {escape(run.summary.scenario)}: means of completed {run.unit}s; \\usepackage{{booktabs}}",
        f"\\begin{{tabular}}{{l{'r' * (len(left) - 1 + len(shown))}}}",
        "\\toprule",
        above,
        rules,
        _row([*left, *(column.latex for column in shown)]),
        "\\midrule",
    ]
    before = None
    for row in rows:
        name = row["name"]
        if len(left) > 1 and before not in (None, name):
            lines.append("\\addlinespace")
        cells = [escape(name) if name != before else "", *[escape(row["rate"] or "")] * (len(left) - 1)]
        cells += ["" if c.whole and name == before else c.text(row["part"], "--") for c in shown]
        lines.append(_row(cells))
        before = name
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def _units(shown: list[Column], unit: str, place: int) -> tuple[str, str]:
    """The line above the headings, which names units, and the rules under it; `place` columns are before."""
    cells, rules = [""] * place, []
    for name, columns in groupby(shown, lambda column: column.unit):
        many = len(list(columns))
        cells += [f"\\multicolumn{{{many}}}{{c}}{{{name} per {unit}}}"] if name else [""] * many
        rules += [f"\\cmidrule(lr){{{place + 1}-{place + many}}}"] * bool(name)
        place += many
    return " ".join(_row(cells).split()), " ".join(rules)


def _row(cells: list[str]) -> str:
    return f"{' & '.join(cells)} \\\\"
