"""The states, deadlines and reasons of machines that patterns reach, and those that they never do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from simfl.protocols.machine import SERVER, Discard, Effects, Ignore, Reason, Refuse
from simfl.trace.codes import Discarded

Row = tuple[str, ...]
"""A thing to reach: a user's state and the message that it took; a stage or a message of the
server; a stage whose deadline passed; a reason to ignore or to throw away; a refused message."""

OF_ROUNDS = (
    Reason.OUT_OF_PHASE, Reason.UNKNOWN, Reason.EARLY, Reason.LATE, Reason.REPEATED, Reason.UNEXPECTED,
    Reason.NO_SHARE, Reason.STALE_TIMER,
)  # fmt: skip
OF_BUFFERS = (
    Reason.OUT_OF_PHASE, Reason.UNKNOWN, Reason.NOT_IN_FLIGHT, Reason.STALE_TIMER,
)  # fmt: skip
OF_RECOVERIES = (
    Reason.LATE, Reason.REPEATED, Reason.STRANGER, Reason.NO_MASK, Reason.NOT_BEGUN, Reason.NO_SHARE,
)  # fmt: skip
"""Further ones of a buffer whose sum is recovered."""

NEVER: dict[Row, str] = {
    ("user", "signed", "survivors"): "the server asks once",
    ("user", "answered", "survivors"): "the server asks once",
    ("deadline", "advertise"): "all users of a buffer enrol: they are lost in their first cycle",
    ("ignored", Reason.OUT_OF_PHASE): "the server sends users what they wait for",
    ("ignored", Reason.UNKNOWN): "nobody sends what its receiver never takes",
    ("ignored", Reason.EARLY): "nobody sends before it is asked",
    ("ignored", Reason.REPEATED): "nobody sends twice",
    ("ignored", Reason.UNEXPECTED): "who is not expected has left, or was asked nothing",
    ("ignored", Reason.STRANGER): "nobody sends who is not in the run",
    ("ignored", Reason.NO_SHARE): "no share is forged",
    ("ignored", Reason.NO_MASK): "an upload follows its mask's shares on one link",
    ("ignored", Reason.NOT_BEGUN): "the server begins no cycle that a user refuses",
    ("refused",): "everybody is honest, and a refusal breaks a law",
}
"""The reasons for which no pattern reaches a row."""
UNTRIED = "not by the patterns that were tried"


class Reached:
    """The rows that were reached, noted at each call of a machine."""

    def __init__(self) -> None:
        self.rows = set[Row]()

    def __call__(self, party: int, name: str, own: Callable[..., Effects], *arguments: Any) -> Effects:
        """Note one call; see `simfl.runs.watch`."""
        machine: Any = getattr(own, "__self__", None)
        state = getattr(machine, "stage" if party == SERVER else "state", None)
        if name == "receive":
            self.took(machine, party, state, arguments[1])
        effects = own(*arguments)
        if name == "expire" and not any(isinstance(effect, Ignore) for effect in effects):
            self.rows.add(("deadline", arguments[0].name))
        for effect in effects:
            if isinstance(effect, Ignore):
                self.rows.add(("ignored", effect.reason))
            elif isinstance(effect, Discard):
                self.rows.add(("discarded", effect.reason))
            elif isinstance(effect, Refuse):
                self.rows.add(("refused", effect.message))
        return effects

    def took(self, machine: Any, party: int, state: str | None, message: Any) -> None:
        table = getattr(machine, "table", {})
        if party != SERVER and (state, type(message)) in table:
            self.rows.add(("user", str(state), message.kind))
        elif party == SERVER and type(message) in table:
            self.rows.add(("server", message.kind))
        elif party == SERVER and state in getattr(machine, "stages", {}):
            self.rows.add(("server", str(state)))


def tables(client: Any, server: Any, deadlines: Collection[str], buffered: bool) -> Iterator[Row]:
    """Yield all rows of a protocol's machines that there are; a machine without a table has none."""
    yield from (("user", state, kind.kind) for state, kind in getattr(client, "table", {}))
    of_server = getattr(server, "table", {}) if buffered else {}
    yield from (("server", kind.kind) for kind in of_server)
    yield from (("server", stage) for stage in getattr(server, "stages", {}))
    yield from (("deadline", name) for name in deadlines)
    recovers = buffered and "recovery" in deadlines
    of_buffers = (*OF_BUFFERS, *(OF_RECOVERIES if recovers else ()))
    yield from (("ignored", reason) for reason in (of_buffers if buffered else OF_ROUNDS))
    thrown = Discarded if recovers else (Discarded.STALE,) if buffered else ()
    yield from (("discarded", reason) for reason in thrown)


SAID = {
    "user": "users' states",
    "server": "the server's stages",
    "deadline": "deadlines",
    "ignored": "reasons to ignore",
    "discarded": "reasons to throw an update away",
    "refused": "refusals",
}


@dataclass(frozen=True)
class Tried:
    """A row of an exploration: a law, or parts of the machines' tables.

    Attributes:
        name: the law, or the kind of part.
        parts: those that were reached; none of a law.
        because: why it was not tried; empty if it was.
    """

    name: str
    parts: tuple[str, ...] = ()
    because: str = ""

    def __str__(self) -> str:
        text = f"{self.name}: {', '.join(self.parts)}" if self.parts else self.name
        return f"not tried  {text}, because {self.because}" if self.because else f"{'ok':11}{text}"

    @property
    def number(self) -> int:
        return max(1, len(self.parts))


def tried(reached: set[Row], rows: Iterable[Row]) -> Iterator[Tried]:
    """Yield of each kind what was reached, and each part that was not with its reason."""
    rows = [*rows, *sorted(row for row in reached if row[0] == "refused")]
    if not any(row[0] == "refused" for row in rows):
        rows.append(("refused",))
    for kind, words in SAID.items():
        here = tuple("/".join(row[1:]) for row in rows if row[0] == kind and row in reached)
        if here:
            yield Tried(words, here)
    for row in rows:
        if row not in reached:
            yield Tried(SAID[row[0]], tuple(filter(None, ["/".join(row[1:])])), NEVER.get(row, UNTRIED))


def counted(rows: Iterable[Tried]) -> str:
    """Return how many laws and parts are ok, failed and not tried, where no law is broken."""
    number = Counter[bool]()
    for row in rows:
        number[not row.because] += row.number
    return f"{number[True]} ok, 0 failed, {number[False]} not tried"
