"""The breakdown of a run as a LaTeX table (package booktabs), for a paper."""

from __future__ import annotations

from itertools import groupby

from simfl.reports import tables
from simfl.reports.folder import Run
from simfl.results.columns import Column, at

ESCAPES = str.maketrans({
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_",
    "%": r"\%", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}",
})  # fmt: skip
"""Characters that LaTeX would obey."""


def escape(text: str) -> str:
    r"""Text that LaTeX sets as it is; line ends and other control characters become spaces.

    >>> print(escape("a_b & 5 %"))
    a\_b \& 5 \%
    """
    return "".join(sign if sign.isprintable() else " " for sign in text).translate(ESCAPES)


def table(run: Run) -> str:
    """A `tabular` with a row for each protocol and drop-out rate, means over its completed rounds.

    Seconds are spans, which overlap and so need not add up to the total; bytes are of all users together;
    the accuracy is the last one of the protocol. Columns that the run has nothing for are left out.
    """
    rows, protocols = tables.breakdown(run), run.summary.protocols
    shown = [
        c for c in at("latex", protocols.values()) if not c.whole or any(map(c.tells, protocols.values()))
    ]
    left = ["Protocol", *["Lost"] * any(row.rate is not None for row in rows)]
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
    for name, of_protocol in groupby(rows, lambda row: row.name):
        if len(left) > 1 and name != rows[0].name:
            lines.append("\\addlinespace")
        for place, row in enumerate(of_protocol):
            cells = ["" if place else escape(name), *[escape(row.rate or "")] * (len(left) - 1)]
            cells += ["" if c.whole and place else c.text(row.part, "--") for c in shown]
            lines.append(_row(cells))
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def _units(shown: list[Column], unit: str, place: int) -> tuple[str, str]:
    """The line of units above the headings and the rules under it; `place` columns come before."""
    cells, rules = [""] * place, []
    for name, columns in groupby(shown, lambda column: column.unit):
        many = len(list(columns))
        cells += [f"\\multicolumn{{{many}}}{{c}}{{{name} per {unit}}}"] if name else [""] * many
        rules += [f"\\cmidrule(lr){{{place + 1}-{place + many}}}"] * bool(name)
        place += many
    return " ".join(_row(cells).split()), " ".join(rules)


def _row(cells: list[str]) -> str:
    return f"{' & '.join(cells)} \\\\"
