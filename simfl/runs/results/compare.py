"""The comparison of runs, of repeats of runs, or of sweeps: entries matched by name, and verdicts on them.

Invariant: verdicts are antisymmetric. Where A is faster than B, B is slower than A; a tie is one both ways.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from simfl.runs.results.breakdown import DIFFERENT, ReportTable, TableCell, TableRow, class_sections
from simfl.runs.results.columns import BREAKDOWN, Column, Measure, TableName, columns_of
from simfl.runs.results.drift import Drift, warning
from simfl.runs.results.statistics import MOST_DIGITS, Estimate
from simfl.runs.results.summary import ProtocolSummary
from simfl.trace.rows import unit

HEADLINE: Measure = ("per_aggregate_s", "")
TWICE = 2  # from here on a difference is told in times, below it in percent
SMALLEST_PERCENT = 0.05

Relation = Literal["faster", "slower", "tie"]
Key = tuple[str, str]
"""A sweep's point in words ("" of a run), and an entry."""


class Verdict(NamedTuple):
    """A time against a reference; ratio: the time over the reference's, None where that is zero."""

    relation: Relation
    ratio: float | None

    @property
    def text(self) -> str:
        """The verdict in words; percent are of the reference's time.

        >>> Verdict("faster", 0.88).text, Verdict("slower", 2.34).text, Verdict("tie", 1.01).text
        ('faster by 12 %', 'slower 2.3 x', 'tie')
        """
        if self.relation == "tie" or not self.ratio:
            return self.relation
        times = max(self.ratio, 1 / self.ratio)
        if times >= TWICE:
            return f"{self.relation} {times:.{1 if times < 100 else 0}f} x"
        percent = 100 * abs(1 - self.ratio)
        if percent < SMALLEST_PERCENT:
            return f"{self.relation} by under 0.1 %"
        return f"{self.relation} by {percent:.{1 if percent < 1 else 0}f} %"


def verdict(found: Estimate, reference: Estimate) -> Verdict:
    """Return the verdict on a time. A tie: the intervals overlap, or no shown digit of the means differs."""
    ratio = found.mean / reference.mean if reference.mean else None
    if found.ties(reference) or round(found.mean, MOST_DIGITS) == round(reference.mean, MOST_DIGITS):
        return Verdict("tie", ratio)
    return Verdict("faster" if found.mean < reference.mean else "slower", ratio)


@dataclass(frozen=True)
class Case:
    """An entry of a run, of repeats of one, or of a sweep at a point."""

    estimates: Mapping[Measure, Estimate | None]
    """Its means by measure, None of no value."""
    texts: Mapping[Measure, str]
    """The figures of each measure in a table."""
    rounds: object
    """Equal where the same rounds were completed, None where that is not known."""
    protocols: Sequence[ProtocolSummary] = ()
    """Its summary in each run; none of a sweep."""

    @classmethod
    def of_runs(cls, protocols: Sequence[ProtocolSummary], noisy: bool) -> "Case":
        """Return the case of one run or several. noisy: times have noise, and intervals over rounds."""
        columns = [column for place in BREAKDOWN for column in columns_of(place, protocols)]
        rounds = {tuple(r.index for r in p.completed) for p in protocols}
        return cls(
            {column.measure: column.estimate(protocols, noisy) for column in columns},
            {column.measure: column.over_runs(protocols, noisy) for column in columns},
            rounds.pop() if len(rounds) == 1 else None,
            protocols,
        )

    @classmethod
    def of_means(cls, means: Mapping[Measure, Estimate | None]) -> "Case":
        """Return the case of a sweep's point and entry from its means over seeds."""
        columns = [c for place in BREAKDOWN for c in columns_of(place) if "unswept" not in c.traits]
        found = {column.measure: means.get(column.measure) for column in columns}
        texts = {c.measure: _mean_text(c, e) for c in columns if (e := found[c.measure])}
        done, every = (means.get((key, "")) for key in ("completed", "rounds"))
        whole = done is not None and every is not None and done.mean == every.mean
        return cls(found, texts, every.mean if every and whole else None)

    def has_content(self, column: Column) -> bool:
        """Return True where there is anything to tell of a column."""
        mean = self.estimates.get(column.measure)
        return bool(mean and (mean.mean or "rare" not in column.traits or column.reduction == "share"))

    def against(self, reference: "Case") -> Verdict | None:
        """Return the verdict on the seconds per aggregate; None where one made no aggregate."""
        found, other = self.estimates.get(HEADLINE), reference.estimates.get(HEADLINE)
        return verdict(found, other) if found and other else None


def _mean_text(column: Column, mean: Estimate) -> str:
    """Return a mean over seeds with its interval; a count that is the same under all of them as it is."""
    if column.reduction != "mean" and not mean.half:
        return f"{mean.mean:g}"
    return mean.text(*column.form)


@dataclass(frozen=True)
class Side:
    """A run, repeats of one, or a sweep."""

    label: str
    """Its name in the comparison."""
    folder: str
    """The folder that it was read from."""
    kind: Literal["run", "sweep"]
    """Repeats are a run."""
    over: Literal["", "rounds", "runs", "seeds"]
    """Samples of its intervals; "" without any."""
    settings: Mapping[str, Any]
    """The resolved scenario, and versions."""
    cases: Mapping[Key, Case]
    """Its entries."""
    clock: str = ""
    """Kind of its clock; "" of a sweep."""
    time: str = "virtual"
    """`virtual` or `real`."""
    interrupted: bool = False
    """Rounds are missing because a run was stopped."""
    drifts: Sequence[Drift | None] = ()
    """Of the machine's speed, one of each run or cell."""
    summaries: Sequence[tuple[str, Mapping[str, ProtocolSummary]]] = ()
    """Of each run or cell: its label, and its protocols by entry."""


class Match(NamedTuple):
    """An entry of all sides, or of one and None of those that have none; the first side is the reference."""

    key: Key
    cases: tuple[Case | None, ...]

    @property
    def verdicts(self) -> tuple[Verdict | None, ...]:
        """Of each side; None of the reference itself, and where there is nothing to compare."""
        first, *rest = self.cases
        return None, *(case.against(first) if case and first else None for case in rest)

    @property
    def verdict_texts(self) -> list[str]:
        """The verdicts of the sides that have the entry, in words; "" where there is none."""
        others = [found.text if found else "" for found in self.verdicts[1:]]
        return [text for text, case in zip(["reference", *others], self.cases, strict=True) if case]

    @property
    def same_rounds(self) -> bool:
        rounds = {case.rounds for case in self.cases if case}
        return len(rounds) == 1 and None not in rounds

    def by_label(self, labels: Sequence[str]) -> list[tuple[str, Case]]:
        """Return the cases that are there, each with the label of its side."""
        return [(label, case) for label, case in zip(labels, self.cases, strict=True) if case]

    def table(self, labels: Sequence[str]) -> ReportTable:
        """Return the breakdown of the entry, with the sides that have it beside each other."""
        known = self.by_label(labels)
        mark = "" if self.same_rounds else f" {DIFFERENT}"
        sections = [self._rows(place, mark if place == "rates" else "") for place in BREAKDOWN]
        sections[0].append(TableRow("verdict", list(map(TableCell, self.verdict_texts)), is_key=True))
        *first, of_run = sections
        classes = class_sections({label: case.protocols for label, case in known})
        return ReportTable([label for label, _ in known], [*first, *classes, of_run])

    def _rows(self, place: TableName, mark: str) -> list[TableRow]:
        cases = [case for case in self.cases if case]
        return [
            TableRow(
                column.headings[place] + mark,
                [
                    TableCell(case.texts.get(column.measure, ""), any(map(column.wrong, case.protocols)))
                    for case in cases
                ],
                is_key=column.measure == HEADLINE,
            )
            for column in columns_of(place, [p for case in cases for p in case.protocols])
            if any(case.has_content(column) for case in cases)
        ]


@dataclass(frozen=True)
class Comparison:
    """Two sides or more, of one kind; the first one is the reference."""

    sides: Sequence[Side]

    @cached_property
    def settings(self) -> dict[str, list[Any]]:
        """The settings that differ, by dotted key, one of each side; None where it is not set."""
        return differing([side.settings for side in self.sides])

    @cached_property
    def matches(self) -> list[Match]:
        """The entries that two sides or more have, in their order."""
        keys = dict.fromkeys(key for side in self.sides for key in side.cases)
        every = (Match(key, tuple(side.cases.get(key) for side in self.sides)) for key in keys)
        return [match for match in every if sum(case is not None for case in match.cases) > 1]

    @cached_property
    def alone(self) -> list[tuple[Key, Side]]:
        """The entries that only one side has."""
        matched = {match.key for match in self.matches}
        return [(key, side) for side in self.sides for key in side.cases if key not in matched]

    @property
    def unit(self) -> str:
        """A round, or an aggregation where an entry is asynchronous."""
        protocols = (p for match in self.matches for case in match.cases if case for p in case.protocols)
        return unit(any(p.buffered for p in protocols))

    @property
    def time(self) -> str:
        """Real, virtual, or both where a live run is compared with a simulation."""
        return " and ".join(sorted({side.time for side in self.sides}))

    @cached_property
    def moved(self) -> str | None:
        """A warning where the machine's speed moved within the sides or from one to another."""
        return warning([drift for side in self.sides for drift in side.drifts])

    def dump(self) -> dict[str, Any]:
        """Return the comparison as plain values, for JSON."""
        labels = [side.label for side in self.sides]
        return {
            "reference": labels[0],
            "compared": {
                s.label: {"folder": s.folder, "kind": s.kind, "intervals_over": s.over or None}
                for s in self.sides
            },
            "settings": {key: _by(labels, values) for key, values in self.settings.items()},
            "entries": [
                {
                    "point": match.key[0],
                    "entry": match.key[1],
                    "same_rounds": match.same_rounds,
                    "verdicts": {
                        label: found and found._asdict()
                        for label, found in zip(labels[1:], match.verdicts[1:], strict=True)
                    },
                    "measures": _by(labels, [case and _measures(case) for case in match.cases]),
                }
                for match in self.matches
            ],
            "moved": self.moved,
            "alone": [{"point": key[0], "entry": key[1], "in": side.label} for key, side in self.alone],
        }


def _by(labels: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(labels, values, strict=True))


def _measures(case: Case) -> list[dict[str, Any]]:
    return [
        {"measure": key, "phase": phase, "mean": e.mean, "half_95": e.half, "n": e.n}
        for (key, phase), e in case.estimates.items()
        if e
    ]


def differing(trees: Sequence[Any], path: str = "") -> dict[str, list[Any]]:
    """Return the values that differ between trees of plain values, by dotted key.

    >>> differing([{"a": {"b": 1, "c": 2}}, {"a": {"b": 3, "c": 2}}])
    {'a.b': [1, 3]}
    """
    if not all(isinstance(tree, Mapping) for tree in trees):
        return {} if all(tree == trees[0] for tree in trees) else {path: list(trees)}
    found: dict[str, list[Any]] = {}
    for key in dict.fromkeys(key for tree in trees for key in tree):
        found |= differing([tree.get(key) for tree in trees], f"{path}.{key}".removeprefix("."))
    return found
