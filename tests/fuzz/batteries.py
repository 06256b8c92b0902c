"""Batteries of a run, watched while it goes on: what no row of a trace tells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from simfl.engine.battery import Battery
from simfl.runs.folder.result import Result
from simfl.trace.rows import Spent
from tests.fuzz.judged import Broken


class Watched:
    """The batteries of a run, each from its first change on."""

    def __init__(self) -> None:
        self.seen: dict[int, Battery] = {}  # by identity: they are held, so that none takes another's

    def look(self, battery: Battery) -> None:
        """Broken: a level below nothing or above the capacity."""
        self.seen[id(battery)] = battery
        if not 0 <= battery.level <= battery.store.capacity or battery.charged < 0 or battery.standby < 0:
            raise Broken("levels", f"user {battery.user}: {battery}")

    def check(self, result: Result) -> None:
        """Broken: users whose rows have more energy than their batteries gave, over all protocols."""
        given: dict[int, int] = defaultdict(int)
        for battery in self.seen.values():
            had = battery.store.start(battery.user) + battery.charged
            given[battery.user] += had - battery.standby - battery.level
        drawn: dict[int, int] = defaultdict(int)
        for rows in result.traces.values():
            for row in rows:
                if isinstance(row, Spent) and row.party in given:
                    drawn[row.party] += sum(fj for _, _, fj in row.amounts)
        for user, fj in given.items():
            if fj < drawn[user]:
                raise Broken("batteries", f"user {user}: {drawn[user]} fJ by the rows, {fj} by its batteries")


@contextmanager
def watched() -> Iterator[Watched]:
    """Look at each battery after each of its changes."""
    seen, before = Watched(), (Battery.advance, Battery.pay)

    def looked(change: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(change)
        def made(battery: Battery, *given: Any) -> Any:
            found = change(battery, *given)
            seen.look(battery)
            return found

        return made

    try:
        Battery.advance, Battery.pay = map(looked, before)  # type: ignore[method-assign]
        yield seen
    finally:
        Battery.advance, Battery.pay = before  # type: ignore[method-assign]
