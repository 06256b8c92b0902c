"""The breakdown of a run as a LaTeX table (package booktabs), for a paper."""

from __future__ import annotations

from simfl.reports import tables
from simfl.reports.folder import Run
from simfl.results.trace import PHASES

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
    rows = tables.breakdown(run)
    rates = any(row["rate"] is not None for row in rows)
    accuracies = {name: entry["final_accuracy"] for name, entry in run.summary["protocols"].items()}
    learnt = any(value is not None for value in accuracies.values())
    first = 2 + rates
    seconds = f"\\multicolumn{{{len(PHASES) + 1}}}{{c}}{{Seconds of virtual time per {run.unit}}}"
    lines = [
        f"% {escape(run.summary['scenario'])}: means of completed {run.unit}s; \\usepackage{{booktabs}}",
        f"\\begin{{tabular}}{{l{'r' * rates}{'r' * (len(PHASES) + 3)}{'r' * learnt}}}",
        "\\toprule",
        f"{'& ' * (1 + rates)}{seconds} & \\multicolumn{{2}}{{c}}{{MB per {run.unit}}}{' &' * learnt} \\\\",
        f"\\cmidrule(lr){{{first}-{first + 4}}} \\cmidrule(lr){{{first + 5}-{first + 6}}}",
        _row(["Protocol", *["Lost"] * rates, *(p.capitalize() for p in PHASES), "Total", "Up", "Down",
              *["Final accuracy"] * learnt]),
        "\\midrule",
    ]  # fmt: skip
    before = None
    for row in rows:
        name = row["name"]
        if rates and before not in (None, name):
            lines.append("\\addlinespace")
        cells = [escape(name) if name != before else ""]
        cells += [escape(row["rate"] or "")] * rates
        cells += [f"{row['span'][phase].mean:.3f}" for phase in PHASES]
        cells += [f"{row[key].mean:.3f}" for key in ("total", "up", "down")]
        cells += [_accuracy(accuracies[name]) if name != before else ""] * learnt
        lines.append(_row(cells))
        before = name
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def _row(cells: list[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


def _accuracy(value: float | None) -> str:
    return "--" if value is None else f"{value:.4f}"
