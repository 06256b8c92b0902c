"""The report of a plan: the answer, its guarantee, the other candidates, and the refused protocols."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from simfl.reports.model import Report, Sentence
from simfl.runs.results.breakdown import ReportTable, TableCell, TableRow
from simfl.studies.plan.answer import chosen, letters, sums
from simfl.studies.plan.search import Answer, Candidate
from simfl.studies.plan.sensitivity import FURTHEST, Crossover, is_tried

HEADINGS = ("s/aggregate", "MB/user", "J/user", "fails", "insecure")


def plan_report(answer: Answer, changes: Sequence[Crossover]) -> Report:
    """Return the report of a plan.

    Args:
        answer: The candidates.
        changes: Changes of a given by which another protocol would be the fastest.
    """
    return Report(list(_parts(answer, changes)))


def _parts(answer: Answer, changes: Sequence[Crossover]) -> Iterator[Sentence | ReportTable]:
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
        reason = "it has no rival, or too many users"
        yield Sentence("note", f"What would change the answer was not tried: {reason}")
    elif not changes:
        changed = f"one assumption up to {FURTHEST:g} times lower or higher"
        yield Sentence("text", f"No other is faster by 5 % with {changed}")
    yield from (
        Sentence("text", f"{crossover.best} would be the fastest with {_times(crossover)}")
        for crossover in changes
    )
    refused = (f"refused: {refused.name}: {refused.reason}" for refused in answer.refused)
    yield from (Sentence("warning", text) for text in refused)
    if users := answer.losses.counted_users:
        bound = "the upper end of their 95 % interval, as if users were lost one by one"
        yield Sentence("warning", f"Losses were counted in plain rounds of {users} users in all: {bound}")
    # Far protocols of large fleets were run under one seed only (`search.FAR`).
    has_single_seed = any(c.seconds.half is None for c in answer.candidates)
    single = "; without it, one seed of a protocol far behind" if has_single_seed else ""
    yield Sentence("note", f"±: 95 % interval of a mean over {best.seconds.n} seeds{single}")


def _times(crossover: Crossover) -> str:
    """Return a change in words."""
    return f"{crossover.factor:.2g} x the {crossover.given}"


def _details(c: Candidate) -> list[str]:
    """Return a candidate's settings and guarantee, line by line."""
    s, guarantee = c.scenario, c.setting.guarantee
    counts, field = chosen(s), sums(s)
    lines = [f"settings: {_in_words(letters(c.setting))}"]
    if s.buffer is not None:
        in_flight = f"{counts['chosen']} users in flight, staleness at most {s.buffer.staleness_bound}"
        lines.append(f"a buffer of K = {s.buffer.K}, {in_flight}")
    elif counts["enough"] < counts["chosen"]:
        lines.append(
            f"choose {counts['chosen']} users, of whom the first {counts['enough']} uploads are enough"
        )
    if field:
        lines.append(f"q = {field['q']}, {field['levels']} levels: a mean is off by {field['rounding']:.1g}")
    waits = (f"{name} {deadline.after_s:g} s" for name, deadline in s.deadlines.given.items())
    lines.append(f"deadlines: {', '.join(waits)}")
    insecure = guarantee.insecure
    security = "" if insecure is None else f", and is insecure with at most {_power(insecure)}"
    lines.append(f"a round fails with at most {guarantee.fails:.1e}{security}")
    return lines


def _in_words(values: Mapping[str, Any]) -> str:
    shown = {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in values.items()}
    return ", ".join(f"{key} = {value}" for key, value in shown.items())


def _cells(c: Candidate) -> Sequence[str]:
    """Return a candidate's cells, one for each of `HEADINGS`."""
    guarantee = c.setting.guarantee
    insecure = "hides nothing" if guarantee.insecure is None else _power(guarantee.insecure)
    return (
        c.seconds.text(2),
        c.user_mb.text(1),
        "" if c.user_j is None else c.user_j.text(1),
        f"{guarantee.fails:.0e}",
        insecure,
    )


def _power(probability: float) -> str:
    return f"2^{math.log2(probability):.0f}" if probability else "0"
