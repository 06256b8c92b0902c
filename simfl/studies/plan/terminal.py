"""The terminal's view of a plan: the answer, what it promises, the others, and who was refused."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from simfl.reports.grid import line, say
from simfl.studies.plan.answer import chosen, letters, sums
from simfl.studies.plan.search import Answer, Candidate
from simfl.studies.plan.sensitivity import FURTHEST, Flip, is_tried

HEADINGS = ("s/aggregate", "MB/user", "J/user", "fails", "insecure")


def show_plan(console: Console, answer: Answer, changes: Sequence[Flip]) -> None:
    """Print what a fleet should run, and what would change that."""
    fleet, best = answer.fleet, answer.best
    hiding = "nothing to hide" if fleet.colluders is None else f"{fleet.colluders} may collude"
    wanted = "all" if fleet.updates is None else str(fleet.updates)
    say(console, f"{fleet.name}: {fleet.population.users} users, {hiding}, {wanted} updates wanted", "italic")
    ties = [c.name for c in answer.candidates[1:] if c.seconds.ties(best.seconds)]
    tie = f", in a tie with {' and '.join(ties)}" if ties else ""
    say(console, f"Take {best.name}: {best.seconds.text()} s an aggregate{tie}", "bold")
    for text in _details(best):
        say(console, f"  {text}", "")
    line(console, "")
    _table(console, answer)
    if answer.plain is not None:
        say(console, f"{answer.plain.name} hides nothing: the floor that protection is held to", "dim")
    if not is_tried(answer):
        say(console, "What would change the answer was not tried: it has no rival, or too many users", "dim")
    elif not changes:
        furthest = f"between 1/{FURTHEST:g} and {FURTHEST:g} times"
        say(console, f"No other is faster by 5 % with {furthest} of any one given", "")
    for flip in changes:
        say(console, f"{flip.best} would be the fastest with {_times(flip)}", "")
    for one in answer.refused:
        say(console, f"refused: {one.name}: {one.why}", "yellow")
    if seen := answer.losing.measured:
        how = "the upper end of their 95 % interval, as if users were lost one by one"
        say(console, f"Losses were counted in plain rounds of {seen} users in all: {how}", "yellow")
    far = any(c.seconds.half is None for c in answer.candidates)
    alone = "; without it, one seed of a protocol far behind" if far else ""
    say(console, f"±: 95 % interval of a mean over {best.seconds.n} seeds{alone}", "dim")


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


def _table(console: Console, answer: Answer) -> None:
    listed = [*answer.candidates, *([answer.plain] if answer.plain else [])]
    rows = [("", *HEADINGS), *((c.name, *_cells(c)) for c in listed)]
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = [row[0].ljust(widths[0])] + [row[k].rjust(widths[k]) for k in range(1, len(row))]
        line(console, "  ".join(cells).rstrip(), "" if number else "dim")


def _cells(c: Candidate) -> Sequence[str]:
    promise = c.setting.promise
    insecure = "hides nothing" if promise.insecure is None else _power(promise.insecure)
    return (
        c.seconds.text(2),
        c.user_mb.text(1),
        "-" if c.user_j is None else c.user_j.text(1),
        f"{promise.fails:.0e}",
        insecure,
    )


def _power(probability: float) -> str:
    return f"2^{math.log2(probability):.0f}" if probability else "0"
