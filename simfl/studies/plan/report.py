"""The report of a plan: the answer, what it promises, the others, and who was refused."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from simfl.reports.model import Report, Sentence
from simfl.runs.results.breakdown import ReportTable, TableCell, TableRow
from simfl.studies.plan.answer import chosen, letters, sums
from simfl.studies.plan.search import Answer, Candidate
from simfl.studies.plan.sensitivity import FURTHEST, Flip, is_tried

HEADINGS = ("s/aggregate", "MB/user", "J/user", "fails", "insecure")


def plan_report(answer: Answer, changes: Sequence[Flip]) -> Report:
    """Return what a fleet should run, what it promises, the others, and what would change that."""
    return Report(list(_parts(answer, changes)))


def _parts(answer: Answer, changes: Sequence[Flip]) -> Iterator[Sentence | ReportTable]:
    fleet, best = answer.fleet, answer.best
    hiding = "nothing to hide" if fleet.colluders is None else f"{fleet.colluders} may collude"
    wanted = "all" if fleet.updates is None else str(fleet.updates)
    asked = f"{fleet.population.users} users, {hiding}, {wanted} updates wanted"
    yield Sentence("title", f"{fleet.name}: {asked}")
    ties = [c.name for c in answer.candidates[1:] if c.seconds.ties(best.seconds)]
    tie = f", in a tie with {' and '.join(ties)}" if ties else ""
    yield Sentence("conclusion", f"Take {best.name}: {best.seconds.text()} s an aggregate{tie}")
    yield from (Sentence("text", f"  {text}") for text in _details(best))
    yield Sentence("gap", "")
    shown = [*answer.candidates, *([answer.plain] if answer.plain else [])]
    cells = zip(*map(_cells, shown), strict=True)
    rows = [
        TableRow(heading, list(map(TableCell, column)))
        for heading, column in zip(HEADINGS, cells, strict=True)
    ]
    yield ReportTable([c.name for c in shown], [rows], across=True)
    if answer.plain is not None:
        yield Sentence("note", f"{answer.plain.name} hides nothing: the floor that protection is held to")
    if not is_tried(answer):
        why = "it has no rival, or too many users"
        yield Sentence("note", f"What would change the answer was not tried: {why}")
    elif not changes:
        furthest = f"between 1/{FURTHEST:g} and {FURTHEST:g} times"
        yield Sentence("text", f"No other is faster by 5 % with {furthest} of any one given")
    yield from (Sentence("text", f"{flip.best} would be the fastest with {_times(flip)}") for flip in changes)
    yield from (Sentence("warning", f"refused: {one.name}: {one.why}") for one in answer.refused)
    if seen := answer.losing.measured:
        how = "the upper end of their 95 % interval, as if users were lost one by one"
        yield Sentence("warning", f"Losses were counted in plain rounds of {seen} users in all: {how}")
    far = any(c.seconds.half is None for c in answer.candidates)
    alone = "; without it, one seed of a protocol far behind" if far else ""
    yield Sentence("note", f"±: 95 % interval of a mean over {best.seconds.n} seeds{alone}")


def _times(flip: Flip) -> str:
    """Return a change in words: what, and how many times as much."""
    return f"{flip.factor:.2g} x the {flip.given}"


def _details(c: Candidate) -> list[str]:
    s, promise = c.scenario, c.setting.promise
    who, of_sums = chosen(s), sums(s)
    found = [f"settings: {_said(letters(c.setting))}"]
    if s.buffer is not None:
        flying = f"{who['chosen']} users in flight, staleness at most {s.buffer.staleness_bound}"
        found.append(f"a buffer of K = {s.buffer.K}, {flying}")
    elif who["enough"] < who["chosen"]:
        found.append(f"choose {who['chosen']} users, of whom the first {who['enough']} uploads are enough")
    if of_sums:
        found.append(
            f"q = {of_sums['q']}, {of_sums['levels']} levels: a mean is off by {of_sums['rounding']:.1g}"
        )
    waits = {name: f"{deadline.after_s:g} s" for name, deadline in s.deadlines.given.items()}
    found.append(f"deadlines: {', '.join(f'{name} {wait}' for name, wait in waits.items())}")
    found.append(f"a round fails with at most {promise.fails:.1e}")
    if promise.insecure is not None:
        found[-1] += f", and is insecure with at most {_power(promise.insecure)}"
    return found


def _said(values: Mapping[str, Any]) -> str:
    shown = {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in values.items()}
    return ", ".join(f"{key} = {value}" for key, value in shown.items())


def _cells(c: Candidate) -> Sequence[str]:
    promise = c.setting.promise
    insecure = "hides nothing" if promise.insecure is None else _power(promise.insecure)
    return (
        c.seconds.text(2),
        c.user_mb.text(1),
        "" if c.user_j is None else c.user_j.text(1),
        f"{promise.fails:.0e}",
        insecure,
    )


def _power(probability: float) -> str:
    return f"2^{math.log2(probability):.0f}" if probability else "0"
