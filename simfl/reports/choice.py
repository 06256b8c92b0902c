"""The rounds of a run that a page's timeline shows.

Rule: all if they fit; otherwise the typical ones first (the median of the completed rounds at each drop-out
rate), then the longest, the first and the aborted ones, then the others in their order. An asynchronous run
shows its beginning and a stretch from its middle. Of a round that alone is too large, some users: those on
its critical path, those who were lost, and others evenly.
"""

from __future__ import annotations

from dataclasses import dataclass

from simfl.errors import BadInput
from simfl.reports import trace_series
from simfl.reports.folder import Run
from simfl.results.trace import SERVER, End, Lost, Row

BEGINNING_PART = 0.4  # of the budget, for the beginning of an asynchronous run


@dataclass(frozen=True)
class View:
    """A stretch of a trace that is looked at as one; `users` are those that are shown, None for all."""

    label: str
    start: int
    end: int
    ends: tuple[End, ...]
    numbers: tuple[int, ...]
    users: tuple[int, ...] | None = None


def views(
    run: Run, name: str, budget: int, asked: tuple[int, int] | None = None
) -> tuple[list[View], int, str]:
    """The views of a protocol, within about `budget` rows; the place of the one to show first, which is a
    round of typical length or an asynchronous run's last; and what is left out, in words ("" if nothing).

    asked: only these rounds, from and to, the first of them that fit. Raises BadInput if there are none.
    """
    rounds = [r.index for r in run.rounds[name]]
    if asked:
        rounds = [index for index in rounds if asked[0] <= index <= asked[1]]
        if not rounds:
            raise BadInput(f"--rounds {asked[0]}:{asked[1]}: {name} has finished none of them")
    if not rounds:
        return [], 0, "no finished round"
    groups = trace_series.by_round(run.traces[name])
    ends = {row.round: row for row in run.traces[name] if isinstance(row, End)}
    if run.buffered:
        chosen = [_stretch(run, name, ends, part) for part in _stretches(rounds, groups, budget)]
        return chosen, len(chosen) - 1, _left_out(run.unit, rounds, chosen)
    order = _by_interest(run, name, rounds)
    taken: list[int] = []
    left = budget
    for index in order:
        if not taken or len(groups[index]) <= left:
            taken.append(index)
            left -= len(groups[index])
    chosen = [_round(run, name, ends[index], groups[index], budget) for index in sorted(taken)]
    return chosen, sorted(taken).index(order[0]), _left_out(run.unit, rounds, chosen)


def _by_interest(run: Run, name: str, rounds: list[int]) -> list[int]:
    entries = {e.index: e for e in run.summary.protocols[name].rounds if e.index in rounds}
    rates: dict[float | None, list[int]] = {}
    for index, entry in entries.items():
        if entry.completed:
            rates.setdefault(entry.dropout_rate, []).append(index)
    typical = [sorted(some, key=lambda k: entries[k].total_s)[len(some) // 2] for some in rates.values()]
    longest = max(rounds, key=lambda k: entries[k].total_s)
    aborted = [index for index, e in entries.items() if not e.completed][:1]
    return list(dict.fromkeys([*typical, longest, rounds[0], *aborted, *rounds]))


def _round(run: Run, name: str, end: End, numbers: list[int], budget: int) -> View:
    users = None
    if len(numbers) > budget:
        rows = [run.traces[name][number] for number in numbers]
        (entry,) = (r for r in run.rounds[name] if r.index == end.round)
        users = _some_users(rows, {party for _, party, _ in entry.critical} - {SERVER}, budget)
    return View(f"round {end.round}", end.start, end.at, (end,), tuple(numbers), users)


def _some_users(rows: list[Row], on_path: set[int], budget: int) -> tuple[int, ...]:
    """The users of a round that tell most, so many that their rows fit."""
    users = [party for party in trace_series.parties(rows) if party != SERVER]
    room = max(1, len(users) * budget // len(rows))
    lost = [row.user for row in rows if isinstance(row, Lost)][: room // 4]
    evenly = users[:: max(1, len(users) // room)]
    return tuple(sorted(list(dict.fromkeys([*sorted(on_path), *lost, *evenly]))[:room]))


def _stretches(rounds: list[int], groups: dict[int, list[int]], budget: int) -> list[list[int]]:
    """All aggregations; or, if not all fit, those at the beginning and a stretch from the middle."""
    sizes = {index: len(groups[index]) for index in rounds}
    if sum(sizes.values()) <= budget:
        return [rounds]
    first = trace_series.first_that_fit(rounds, groups, budget * BEGINNING_PART)
    rest = rounds[len(first) :]
    left = budget - sum(sizes[index] for index in first)
    middle = trace_series.first_that_fit(rest[len(rest) // 2 :], groups, left)
    return [first, middle] if middle else [first]


def _stretch(run: Run, name: str, ends: dict[int, End], rounds: list[int]) -> View:
    """Everything that happens between the start of the first aggregation and the end of the last."""
    start, end = ends[rounds[0]].start, ends[rounds[-1]].at
    numbers = []
    for number, row in enumerate(run.traces[name]):
        since, until = trace_series.extent(row)
        if start <= until and (since < end or since == until == end):
            numbers.append(number)
    many = len(rounds) > 1
    label = f"aggregations {rounds[0]} to {rounds[-1]}" if many else f"aggregation {rounds[0]}"
    return View(label, start, end, tuple(ends[index] for index in rounds), tuple(numbers))


def _left_out(unit: str, rounds: list[int], chosen: list[View]) -> str:
    shown = sum(len(view.ends) for view in chosen)
    users = [len(view.users) for view in chosen if view.users is not None]
    parts = [f"{shown} of {len(rounds)} {unit}s"] * (shown < len(rounds))
    if users:
        who = "those on its critical path, lost ones, others evenly"
        parts.append(f"{max(users)} users of a round at most: {who}")
    return "; ".join(parts)
