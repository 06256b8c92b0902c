"""Loss patterns of a small cohort: a fate, or none, of each user at every boundary between two steps.

How the server learns of a loss makes two families; asynchronous runs have two more (`buffered.py`):

    timeout   lost before it sends at a point, or late there: sent once the server has given it up
    told      lost before or after it sends at a point; the transport reports it at once

Lost after sending at one point and lost before sending at the next are the same thing to a server that
only has its deadlines. Lost amid sending is, to every machine, lost before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, Literal

Detect = Literal["timeout", "told", "busy", "flapping"]
DETECTS: tuple[Detect, ...] = ("timeout", "told")


@dataclass(frozen=True, slots=True, order=True)
class Fate:
    """The fate of a user at a point of the round, or of its first cycle in an asynchronous run."""

    point: str
    when: Literal["before_send", "mid_send", "after_send", "delay"]
    delay_s: float | None = None


Pattern = tuple[Fate | None, ...]


def fates(points: Sequence[str], detect: Detect, delay_s: float) -> tuple[Fate, ...]:
    """Return every fate that a user of a synchronous round can meet at these points."""
    lost = [Fate(point, "before_send") for point in points]
    late = detect == "timeout"
    return (*lost, *(Fate(p, "delay", delay_s) if late else Fate(p, "after_send") for p in points))


def every(users: int, choices: Sequence[Fate], unlucky: int) -> Iterator[Pattern]:
    """Yield all patterns in which so many users meet a fate."""
    for who in combinations(range(users), unlucky):
        for what in product(choices, repeat=unlucky):
            met = dict(zip(who, what, strict=True))
            yield tuple(met.get(user) for user in range(users))


def script(pattern: Pattern) -> dict[str, Any]:
    """Return a pattern as a scenario's `dropout`."""
    losses = [
        {"user": user, "round": 0, "at": fate.point, "when": fate.when}
        | ({} if fate.delay_s is None else {"delay_s": fate.delay_s})
        for user, fate in enumerate(pattern)
        if fate is not None
    ]
    return {"kind": "script", "losses": losses}


def describe(pattern: Pattern) -> str:
    words = {
        "before_send": "lost before", "mid_send": "lost amid", "after_send": "lost after", "delay": "late at",
    }  # fmt: skip
    parts = [f"user {user} {words[f.when]} {f.point}" for user, f in enumerate(pattern) if f is not None]
    return ", ".join(parts) or "nobody lost"
