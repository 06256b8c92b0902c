"""Means over completed rounds and errors, from a run's summary; tables as LaTeX, and as Parquet."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, groupby, repeat
from pathlib import Path
from typing import Any

from simfl.reports.folder import Run
from simfl.reports.model import different_rounds
from simfl.runs.folder.disk import atomic
from simfl.runs.results.breakdown import TableRow, rates, rows
from simfl.runs.results.columns import Measure, TableName, columns_of
from simfl.runs.results.round_summary import RoundSummary
from simfl.runs.results.statistics import Estimate
from simfl.runs.results.summary import ProtocolSummary
from simfl.trace.rows import Lost

LATEX_ESCAPES = str.maketrans({
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_",
    "%": r"\%", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}",
})  # fmt: skip


Part = tuple[str, str | None, ProtocolSummary]
"""A protocol at one drop-out rate: its name, the rate as text, and the summary of those rounds."""


def by_rate(protocols: Mapping[str, ProtocolSummary]) -> list[Part]:
    """Return a part for each protocol and drop-out rate."""
    return [
        (name, None if rate is None else f"{rate:.0%}", protocol.at(rate))
        for name, protocol in protocols.items()
        for rate in rates([protocol])
    ]


def means(table: TableName, protocol: ProtocolSummary) -> dict[Measure, Estimate | None]:
    """Return the means of a table's figures, with their intervals over rounds."""
    return {column.measure: column.estimate([protocol], True) for column in columns_of(table, [protocol])}


def reasons(run: Run) -> dict[str, dict[str, list[Any]]]:
    """Return by protocol its aborted rounds, and (reason, count) of losses, refused and ignored messages."""

    def summed(counts: Iterable[Mapping[str, int]]) -> list[tuple[str, int]]:
        total = sum(map(Counter, counts), Counter[str]())
        return sorted(total.items(), key=lambda item: (-item[1], item[0]))

    return {
        name: {
            "aborted": [r for r in p.rounds if not r.completed],
            "lost": summed([Counter(row.why for row in run.traces[name] if isinstance(row, Lost))]),
            "refused": summed(r.refused for r in p.rounds),
            "ignored": summed(r.ignored for r in p.rounds),
        }
        for name, p in run.summary.protocols.items()
    }


def evaluated(protocols: Mapping[str, ProtocolSummary]) -> dict[str, list[tuple[RoundSummary, float]]]:
    """Return by protocol the rounds after which it was evaluated, each with its accuracy."""
    entries = protocols.items()
    return {name: [(r, r.accuracy) for r in p.rounds if r.accuracy is not None] for name, p in entries}


def escape(text: str) -> str:
    r"""Return text that LaTeX prints literally; line ends and other control characters become spaces.

    >>> print(escape("a_b & 5 %"))
    a\_b \& 5 \%
    """
    # A line end in a name would end a comment line, and the rest of the line would be LaTeX.
    return "".join(sign if sign.isprintable() else " " for sign in text).translate(LATEX_ESCAPES)


def latex(run: Run) -> str:
    """Return a `tabular` (package booktabs) with a row for each protocol and drop-out rate.

    Spans of phases overlap, so they need not add up to the total. Bytes are of all users and of all rounds.
    The accuracy is the protocol's last one. Columns without a value are left out.
    """
    parts = by_rate(run.summary.protocols)
    figures = rows("latex", [[part] for *_, part in parts], run.summary.clock != "modelled")
    # A figure of the run that no entry has, such as an accuracy under payload shadow.
    columns = [c for c in figures if not c.of_run or any(cell.text for cell in c.cells)]
    left = ["Protocol", *["Lost"] * any(rate is not None for _, rate, _ in parts)]
    lines = [
        f"% {escape(run.summary.scenario)}; \\usepackage{{booktabs}}",
        f"\\begin{{tabular}}{{l{'r' * (len(left) - 1 + len(columns))}}}",
        "\\toprule",
        *_latex_units(columns, run, len(left)),
        _latex_row([*left, *(column.label for column in columns)]),
        "\\midrule",
    ]
    for name, of_protocol in groupby(enumerate(parts), lambda numbered: numbered[1][0]):
        if len(left) > 1 and name != parts[0][0]:
            lines.append("\\addlinespace")
        # The first row of a protocol has its name and figures of its whole run; further rows leave them
        # empty.
        for is_later, (k, (_, rate, _)) in zip(chain([False], repeat(True)), of_protocol, strict=False):
            cells = ["" if is_later else escape(name), *[escape(rate or "")] * (len(left) - 1)]
            texts = (column.cells[k].text or "--" for column in columns)
            cells += [
                "" if column.of_run and is_later else text.replace("±", r" $\pm$ ")
                for column, text in zip(columns, texts, strict=True)
            ]
            lines.append(_latex_row(cells))
    lines.append("\\bottomrule")
    if not run.summary.same_rounds:
        note = different_rounds(run.unit)
        lines.append(f"\\multicolumn{{{len(left) + len(columns)}}}{{l}}{{\\footnotesize {note}}} \\\\")
    return "\n".join([*lines, "\\end{tabular}", ""])


def _latex_units(columns: Sequence[TableRow], run: Run, before: int) -> tuple[str, str]:
    """Return the line of units above the headings and the rules under it; `before` columns stand before."""
    cells, rules = [""] * before, []
    for name, below in groupby(columns, lambda row: row.group):
        count = len(list(below))
        heading = name.format(unit=run.unit, time=run.time)
        # `groupby` on neighbours: columns of one unit stand beside each other.
        cells += [f"\\multicolumn{{{count}}}{{c}}{{{heading}}}"] if name else [""] * count
        rules += [f"\\cmidrule(lr){{{before + 1}-{before + count}}}"] * bool(name)
        before += count
    return " ".join(_latex_row(cells).split()), " ".join(rules)


def _latex_row(cells: list[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


def write_parquet(path: Path, table: Mapping[str, Sequence[Any]]) -> None:
    """Write columns of equal length as Parquet: numbers, or text with lists and mappings as JSON."""
    import pyarrow
    from pyarrow import parquet

    arrays = {name: pyarrow.array(_of_one_type(column)) for name, column in table.items()}
    with atomic(path, binary=True) as file:
        parquet.write_table(pyarrow.table(arrays), file)


def _of_one_type(column: Sequence[Any]) -> Sequence[Any]:
    types = {type(value) for value in column if value is not None}
    # A column of Parquet has one type. Integers among floats are exact up to 2^53.
    if types == {int, float}:
        return [None if value is None else float(value) for value in column]
    if types <= {int} or types <= {float}:
        return column
    # Mixed values are text in the form that a scenario has them in.
    return [value if value is None or isinstance(value, str) else json.dumps(value) for value in column]
