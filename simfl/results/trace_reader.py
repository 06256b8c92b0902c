"""Reading `trace.jsonl` back, for reports and for `clock: recorded`.

Invariant: a row that is read is as the engine writes it. Each field has its type and range, a step's segments
fill it, causes are earlier rows, and rounds begin and end in order. Whoever takes a trace from here checks
none of this again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, create_model

from simfl.errors import BadInput
from simfl.results.strict_json import first_problem
from simfl.results.text import shown
from simfl.results.trace import (
    LANES,
    PHASES,
    ROWS,
    SERVER,
    Aborted,
    Aggregated,
    Begin,
    End,
    Presence,
    Row,
    Step,
    Trace,
)

LARGEST = 10**24
"""Of all integers: as nanoseconds thirty million years, and far from what a float cannot hold."""

RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "step": (
        lambda r: (
            r.ready <= r.start <= r.end
            and bool(r.segments)
            and sum([ns for _, ns in r.segments]) == r.end - r.start
        ),
        "ready <= start <= end, and segments that fill it",
    ),
    "message": (
        lambda r: r.bytes <= r.size and (r.arrived is None or r.sent <= r.arrived),
        "bytes <= size and sent <= arrived",
    ),
    "timer": (lambda r: r.at <= r.fires, "at <= fires"),
    "end": (lambda r: r.start <= r.at, "start <= at"),
}
"""What holds between the fields of a row of a kind, and how it is told."""


class TraceError(BadInput):
    """A trace file that cannot be read; names the file and the line."""


class RowError(ValueError):
    """A line that is not a row; the text says what was found and what was expected."""


def read(path: Path, users: int | None = None) -> dict[str, Trace]:
    """Return the traces in a file of `trace.lines`, by protocol. users: how many the scenario has, if known.

    Raises:
        TraceError: the file cannot be read, or a line is not what a run writes.
    """
    lines = _lines(users)
    order: dict[str, _Order] = {}
    current: _Order | None = None
    number = 0
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            for text in file:
                number += 1
                kind, values = _parsed(lines, text)
                if kind == "protocol":
                    current = order.setdefault(values["name"], _Order(values["name"]))
                elif current is None:
                    raise RowError("a row of no protocol")
                else:
                    row = ROWS[kind](**values)
                    if kind in RULES and not RULES[kind][0](row):
                        raise RowError(f"{kind}: expected {RULES[kind][1]}")
                    current.add(row)
    except RowError as error:
        raise TraceError(f"{path}:{number}: not a row of a trace: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: cannot be read ({error})") from None
    return {name: found.rows for name, found in order.items()}


def _lines(users: int | None) -> TypeAdapter[Any]:
    """Make the model of a line: a union of all kinds of rows. users: how many there are, if that is known."""

    def integer(least: int, most: int = LARGEST) -> Any:
        return Annotated[int, Field(ge=least, le=most)]

    last = LARGEST if users is None else users - 1
    natural, cause, user, party = integer(0), integer(-1), integer(0, last), integer(SERVER, last)
    phase: Any = Literal.__getitem__(PHASES)
    array: Any = tuple
    by_name = {"phase": phase, "lane": Literal.__getitem__(LANES), "cause": cause, "previous": cause}
    by_name |= {"user": user, "party": party, "sender": party, "to": party}
    by_hint = {
        "int": natural,
        "int | None": natural | None,
        "str": str,
        "bool": bool,
        "tuple[int, ...]": array[user, ...],
        "tuple[int, int, int, int]": array[natural, natural, natural, natural],
        "tuple[tuple[str, int], ...]": array[array[phase, natural], ...],
        "tuple[tuple[int, str, int], ...]": array[array[user, str, natural], ...],
    }
    config = ConfigDict(strict=True, extra="forbid")
    models: list[Any] = [create_model("protocol", __config__=config, row=Literal["protocol"], name=str)]
    for name, kind in ROWS.items():
        hints = {key: hint.__forward_arg__ for key, hint in kind.__annotations__.items()}
        types: dict[str, Any] = {key: by_name.get(key) or by_hint[hint] for key, hint in hints.items()}
        types["row"] = Literal.__getitem__(name)
        models.append(create_model(name, __config__=config, **types))
    line: Any = Annotated[reduce(or_, models), Field(discriminator="row")]
    return TypeAdapter(line)


def _parsed(lines: TypeAdapter[Any], text: str) -> tuple[str, dict[str, Any]]:
    """Return the kind of a line and its other values."""
    try:
        values = vars(lines.validate_json(text))
    except ValidationError as errors:
        first = errors.errors()[0]
        if first["type"].startswith("union_tag"):
            kind = shown(first["input"].get("row"))
            raise RowError(f"row is {kind}, expected {', '.join(ROWS)} or protocol") from None
        raise RowError(first_problem(errors)) from None
    return values.pop("row"), values


_ENDINGS = Aggregated, Aborted, End


@dataclass(slots=True)
class _Order:
    """The rows of a protocol so far. begun, decided, ended: how many rounds have begun, have an aggregate or
    were aborted, and are over; buffered: it is an asynchronous run, which begins once for all of them."""

    protocol: str
    rows: Trace = field(default_factory=Trace)
    begun: int = 0
    decided: int = 0
    ended: int = 0
    buffered: bool = False

    def add(self, row: Row) -> None:
        """Append a row that can stand here; RowError for any other."""
        number = len(self.rows)
        if isinstance(row, Begin):
            self._begin(row)
        elif not isinstance(row, Presence):
            if row.round >= self.begun and not self.buffered:
                raise RowError(f"round {row.round} of {self.protocol} has not begun")
            if row.cause >= number or (isinstance(row, Step) and row.previous >= number):
                raise RowError(
                    f"its cause is not an earlier row of {self.protocol}, which has {number} so far"
                )
            if isinstance(row, _ENDINGS):
                self._end(row)
        self.rows.append(row)

    def _begin(self, row: Begin) -> None:
        if self.buffered or not self.begun == self.ended == row.round or (self.begun and row.buffered):
            raise RowError(f"{self.protocol} cannot begin round {row.round} here")
        self.begun, self.buffered = row.round + 1, row.buffered

    def _end(self, row: Aggregated | Aborted | End) -> None:
        if row.round != self.ended or self.decided != self.ended + isinstance(row, End):
            raise RowError(f"round {row.round} of {self.protocol} cannot end here")
        if isinstance(row, End):
            self.ended += 1
        else:
            self.decided += 1
