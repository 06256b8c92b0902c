"""The breakdown of a run as a table, made once from its summary: terminal, page, notebook, LaTeX render it.

A row is a figure of all entries. A renderer that shows entries side by side prints rows as they are; one that
shows an entry a line takes the rows for columns.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simfl.errors import counted
from simfl.runs.results.class_figures import PATH, class_figures
from simfl.runs.results.columns import TableName, columns_of
from simfl.runs.results.summary import ProtocolSummary

DIFFERENT, OVERLAP = "†", "*"
"""Marks of rows over other rounds by entry, and of spans that overlap."""
MAX_CLASSES = 12

Entries = Sequence[Sequence[ProtocolSummary]]
"""Of each entry, its summary in one run, or in each repeat."""
Runs = Mapping[str, Sequence[ProtocolSummary]]
"""By entry, its summary in one run, or in each repeat."""


class TableCell(NamedTuple):
    """The text of a figure."""

    text: str
    """Empty of no value."""
    is_fault: bool = False
    """Something went wrong."""


@dataclass(frozen=True)
class TableRow:
    """A figure of all entries, or the title of the rows below it."""

    label: str
    """The name of the figure."""
    cells: Sequence[TableCell] = ()
    """One of each entry; none of a title."""
    group: str = ""
    """Heading above this and the neighbours of the same group."""
    is_key: bool = False
    """The figure by which entries are ranked."""
    of_run: bool = False
    """A figure of the run, where a cell is of some of its rounds."""

    @property
    def is_bold(self) -> bool:
        return self.is_key or not self.cells


@dataclass(frozen=True)
class ReportTable:
    """Figures of entries."""

    names: Sequence[str]
    """The entries."""
    sections: Sequence[Sequence[TableRow]]
    """Rows, in parts that a line sets apart."""
    across: bool = False
    """An entry is a line, so that rows are columns."""

    @property
    def rows(self) -> list[TableRow]:
        """The rows of all sections."""
        return [row for section in self.sections for row in section]


def rows(
    place: TableName, entries: Sequence[Sequence[ProtocolSummary]], noisy: bool, mark: str = ""
) -> list[TableRow]:
    """Return the figures that a place shows.

    Args:
        place: Which figures.
        entries: Of each entry its summary in one run, or in each repeat.
        noisy: Times and energies are shown with their intervals.
        mark: Stands behind each label.
    """
    every = [p for group in entries for p in group]
    overlap = f" {OVERLAP}" * (place == "rates" and any(p.buffered for p in every))
    return [
        TableRow(
            label=label + mark + overlap * (column.key == "span_s"),
            cells=[TableCell(column.over_runs(g, noisy), any(map(column.wrong, g))) for g in entries],
            group=group,
            is_key=column.key == "per_aggregate_s",
            of_run="whole_run" in column.traits,
        )
        for column in columns_of(place, every)
        if "rare" not in column.traits or any(map(column.has_content, every))
        for group, _, label in [column.headings[place].rpartition(" | ")]
    ]


def rates(protocols: Sequence[ProtocolSummary]) -> list[float | None]:
    """Return the drop-out rates of their rounds."""
    return sorted({r.dropout_rate for p in protocols for r in p.rounds}, key=lambda rate: rate or 0)


def breakdown(runs: Runs, noisy: bool, same_rounds: bool) -> ReportTable:
    """Return the figures of all entries: of the run, at each drop-out rate, of each class of users.

    Args:
        runs: The entries.
        noisy: Times and energies are shown with their intervals.
        same_rounds: All entries completed the same rounds.
    """
    entries = list(runs.values())
    every = [p for group in entries for p in group]
    listed = rates(every)
    sections = [rows("time", entries, noisy)]
    for rate in listed:
        parts = entries if len(listed) == 1 else [[p.at(rate) for p in group] for group in entries]
        title = [TableRow(f"drop-out {rate:.0%}"), *rows("time", parts, noisy)] if len(listed) > 1 else []
        completed = rows("rates", parts, noisy, "" if same_rounds else f" {DIFFERENT}")
        sections.append(title + completed)
    sections += [rows("path", entries, noisy), *class_sections(runs), rows("run", entries, noisy)]
    return ReportTable(list(runs), sections)


def class_sections(runs: Runs) -> Iterator[list[TableRow]]:
    """Yield the rows of each class. Shares and joules are of those who were invited, each time; of the
    critical path, the seconds per aggregate that users of the class took."""
    every = [p for group in runs.values() for p in group]
    classes = list(dict.fromkeys(name for p in every for name in p.classes or {}))
    for name in classes[:MAX_CLASSES]:
        of_class = [
            [(p.classes[name], len(p.completed)) for p in group if p.classes and name in p.classes]
            for group in runs.values()
        ]
        sizes = [c.users for group in of_class for c, _ in group]
        from_ = "" if min(sizes) == max(sizes) else f"{min(sizes)} to "
        title = TableRow(f"{name} ({from_}{counted(max(sizes), 'user')})")
        yield [
            title,
            *(
                TableRow(f"  {figure.label}", [TableCell(figure.text(group)) for group in of_class])
                for figure in (*class_figures(every), PATH)
            ),
        ]
    if len(classes) > MAX_CLASSES:
        yield [TableRow(f"and {len(classes) - MAX_CLASSES} more classes")]
