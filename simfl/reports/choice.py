"""Which rounds of a run a page's timeline shows.

Law: all if they fit; otherwise the typical ones first (the median of the completed rounds at each drop-out
rate), then the longest, the first and the aborted ones, then the others in their order. An asynchronous run
shows its beginning and a stretch from its middle. Of a round that alone is too large, some users: those on
its critical path, those who were lost, and others evenly.
"""

from __future__ import annotations

from dataclasses import dataclass

from simfl.errors import BadInput
from simfl.reports import trace_series as read_off
from simfl.reports.folder import Run
from simfl.results.trace import SERVER, End, Lost, Sent, Step, Trace

BEGINNING = 0.4
"""The part of the budget that the beginning of an asynchronous run may take."""


@dataclass(frozen=True)
class View:
    """A stretch of a trace that is looked at as one; `users` are those that are shown, None for all."""

    label: str
    start: int
    end: int
    ends: tuple[End, ...]
    numbers: tuple[int, ...]
    users: tuple[int, ...] | None = None


def views(run: Run, name: str, budget: int, asked: tuple[int, int] | None = None) -> tuple[list[View], str]:
    """The views of a protocol, within about `budget` rows, and what is left out, in words ("" if nothing).

    asked: only these rounds, from and to, the first of them that fit. Raises BadInput if there are none.
    """
    trace = run.traces[name]
    ends = {row.round: row for row in trace if isinstance(row, End)}
    rounds = [r.index for r in run.rounds[name]]
    groups = read_off.by_round(trace)
    if asked:
        rounds = [index for index in rounds if asked[0] <= index <= asked[1]]
        if not rounds:
            raise BadInput(f"--rounds {asked[0]}:{asked[1]}: {name} has finished none of them")
    if not rounds:
        return [], "no finished round"
    if run.buffered:
        chosen = _stretches(trace, rounds, ends, groups, budget)
    else:
        chosen = _rounds(run, name, rounds, ends, groups, budget)
    return chosen, _left_out(run.unit, rounds, chosen)


def _rounds(
    run: Run, name: str, rounds: list[int], ends: dict[int, End], groups: dict[int, list[int]], budget: int
) -> list[View]:
    taken: list[int] = []
    rows = 0
    for index in _by_interest(run, name, rounds):
        if taken and rows + len(groups[index]) > budget:
            continue
        taken.append(index)
        rows += len(groups[index])
    out = []
    for index in sorted(taken):
        end = ends[index]
        users = _some_users(run, name, index, groups[index], budget)
        out.append(View(f"round {index}", end.start, end.at, (end,), tuple(groups[index]), users))
    return out


def typical(run: Run, name: str, chosen: list[View]) -> int:
    """Which view to show first: a round of typical length; of an asynchronous run the last stretch."""
    if run.buffered or not chosen:
        return max(0, len(chosen) - 1)
    of = {view.ends[0].round: place for place, view in enumerate(chosen)}
    return of[_by_interest(run, name, sorted(of))[0]]


def _by_interest(run: Run, name: str, rounds: list[int]) -> list[int]:
    entries = {e.index: e for e in run.summary.protocols[name].rounds if e.index in rounds}
    duration = {index: e.total_s for index, e in entries.items()}
    rates: dict[float | None, list[int]] = {}
    for index, entry in entries.items():
        if entry.completed:
            rates.setdefault(entry.dropout_rate, []).append(index)
    typical = [sorted(listed, key=lambda k: (duration[k], k))[len(listed) // 2] for listed in rates.values()]
    longest = max(rounds, key=lambda k: (duration[k], -k))
    aborted = [index for index, e in entries.items() if not e.completed][:1]
    return list(dict.fromkeys([*typical, longest, rounds[0], *aborted, *rounds]))


def _some_users(run: Run, name: str, index: int, numbers: list[int], budget: int) -> tuple[int, ...] | None:
    """None if the round fits; otherwise the users who tell most."""
    if len(numbers) <= budget:
        return None
    trace = run.traces[name]
    (entry,) = (r for r in run.rounds[name] if r.index == index)
    counts: dict[int, int] = {}
    for number in numbers:
        row = trace[number]
        if isinstance(row, Step | Sent):
            party = row.party if isinstance(row, Step) else max(row.sender, row.to)
            counts[party] = counts.get(party, 0) + 1
    users = [user for user in sorted(counts) if user != SERVER]
    room = max(1, int(len(users) * budget / len(numbers)))
    on_path = sorted({party for _, party, _ in entry.critical} - {SERVER})
    rows = (trace[number] for number in numbers)
    lost = [row.user for row in rows if isinstance(row, Lost)][: room // 4]
    evenly = users[:: max(1, len(users) // room)]
    return tuple(sorted(list(dict.fromkeys([*on_path, *lost, *evenly]))[:room]))


def _stretches(
    trace: Trace, rounds: list[int], ends: dict[int, End], groups: dict[int, list[int]], budget: int
) -> list[View]:
    """The beginning and, if not all fits, a stretch around the middle."""
    sizes = {index: len(groups[index]) for index in rounds}
    if sum(sizes.values()) <= budget:
        return [_stretch(trace, rounds, ends)]
    first = _growing(rounds, sizes, budget * BEGINNING)
    rest = rounds[len(first) :]
    left = budget - sum(sizes[index] for index in first)
    middle = _growing(rest[len(rest) // 2 :], sizes, left) if rest else []
    return [_stretch(trace, part, ends) for part in (first, middle) if part]


def _growing(rounds: list[int], sizes: dict[int, int], budget: float) -> list[int]:
    """From the first on, as many as fit; at least one."""
    taken: list[int] = []
    rows = 0
    for index in rounds:
        rows += sizes[index]
        if taken and rows > budget:
            break
        taken.append(index)
    return taken


def _stretch(trace: Trace, rounds: list[int], ends: dict[int, End]) -> View:
    """Everything that happens between the start of the first aggregation and the end of the last."""
    start, end = ends[rounds[0]].start, ends[rounds[-1]].at
    numbers = tuple(n for n, row in enumerate(trace) if _overlaps(row, start, end))
    many = len(rounds) > 1
    label = f"aggregations {rounds[0]} to {rounds[-1]}" if many else f"aggregation {rounds[0]}"
    return View(label, start, end, tuple(ends[index] for index in rounds), numbers)


def _overlaps(row: object, start: int, end: int) -> bool:
    match row:
        case Step():
            return row.start < end and row.end >= start
        case Sent():
            return row.sent < end and (row.sent if row.arrived is None else row.arrived) >= start
        case _:
            return start <= getattr(row, "at", -1) <= end


def _left_out(unit: str, rounds: list[int], chosen: list[View]) -> str:
    shown = sum(len(view.ends) for view in chosen)
    some = [view for view in chosen if view.users is not None]
    told = []
    if shown < len(rounds):
        told.append(f"{shown} of {len(rounds)} {unit}s")
    if some:
        most = max(len(view.users or ()) for view in some)
        told.append(f"{most} users of a round at most: those on its critical path, lost ones, others evenly")
    return "; ".join(told)
