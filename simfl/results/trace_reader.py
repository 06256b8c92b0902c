"""Reading `trace.jsonl` back, for reports and for `clock: recorded`.

Invariant: a row that is read is as the engine writes it. Each field has its type and range, a step's segments
fill it, causes are earlier rows, and rounds begin and end in order. Whoever takes a trace from here checks
none of this again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simfl.errors import BadInput
from simfl.results import strict_json
from simfl.results.text import shown
from simfl.results.trace import ROWS, Aborted, Aggregated, Begin, End, Presence, Row, Step, Trace
from simfl.results.trace_fields import RowError, row_reader


class TraceError(BadInput):
    """A trace file that cannot be read; names the file and the line."""


def read(path: Path, users: int | None = None) -> dict[str, Trace]:
    """The traces in a file that `trace.lines` wrote, by protocol. users: how many the scenario has, if known.

    Raises:
        TraceError: the file cannot be read, or a line is not what a run writes.
    """
    readers = {name: row_reader(name, kind, users) for name, kind in ROWS.items()}
    order: dict[str, _Order] = {}
    current: _Order | None = None
    lines = 0
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                lines += 1
                kind, values = _parsed(line)
                if kind == "protocol":
                    name = _name(values)
                    current = order.setdefault(name, _Order(name))
                elif current is None:
                    raise RowError("a row of no protocol")
                elif kind not in readers:
                    raise RowError(f"row is {shown(kind)}, expected {', '.join(ROWS)} or protocol")
                else:
                    current.add(readers[kind](values))
    except RowError as error:
        raise TraceError(f"{path}:{lines}: not a row of a trace: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: cannot be read ({error})") from None
    return {name: found.rows for name, found in order.items()}


def _parsed(line: str) -> tuple[str, dict[str, Any]]:
    """The kind of a line and its other values."""
    try:
        values = strict_json.parse(line)
    except ValueError as error:
        raise RowError(f"not JSON ({error})") from None
    if type(values) is not dict:
        raise RowError(f"{shown(values)}, expected a mapping")
    kind = values.pop("row", None)
    if type(kind) is not str:
        raise RowError(f"row is {shown(kind)}, expected its kind")
    return kind, values


def _name(values: dict[str, Any]) -> str:
    name = values.get("name")
    if len(values) != 1 or not isinstance(name, str):
        raise RowError(f"{shown(values)}, expected the name of a protocol")
    return name


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
