"""Reading `trace.jsonl` back, for reports and for `clock: recorded`.

Invariant: a row that is read is as the engine writes it. Each field has its type and range, a step's segments
fill it, causes are earlier rows, and rounds begin and end in order. Other code relies on this without further
checks (tests/trace/test_reader.py).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, create_model

from simfl.config.digests import checked
from simfl.errors import BadInput, reason
from simfl.trace.codes import StepsDone
from simfl.trace.rows import (
    LANES,
    PHASES,
    ROWS,
    SERVER,
    SOURCES,
    TRAIN,
    Begin,
    CheckedIn,
    End,
    Ending,
    Presence,
    Row,
    Spent,
    Step,
    Trace,
)
from simfl.trace.text import first_problem, shown

LARGEST = 10**24
"""Maximum of all integers: as nanoseconds thirty million years, and far below a float's limit."""
LARGEST_FJ = LARGEST * 10**12
"""Maximum of an energy, femtojoules: a megawatt during the longest time."""


def _is_filled(r: Step) -> bool:
    filled = bool(r.segments) and sum([ns for _, ns in r.segments]) == r.end - r.start
    return r.ready <= r.start <= r.end and filled


def _has_steps(r: Step) -> bool:
    return r.call != TRAIN or r.what == "" or StepsDone.read(r.what) is not None


RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "step": (
        lambda r: _is_filled(r) and _has_steps(r),
        "ready <= start <= end, and segments that fill it; `what` of a training is nothing, or steps done",
    ),
    "message": (
        lambda r: r.bytes <= r.size and (r.arrived is None or r.sent <= r.arrived),
        "bytes <= size and sent <= arrived",
    ),
    "timer": (lambda r: r.at <= r.fires, "at <= fires"),
    "end": (lambda r: r.start <= r.at, "start <= at"),
}
"""Checks between the fields of a row of a kind, each with its message."""


class TraceError(BadInput):
    """A trace file that cannot be read; names the file and the line."""


class _RowError(ValueError):
    """A line that is not a row; the text has the value and the expected values."""


def read(path: Path, users: int | None = None) -> dict[str, Trace]:
    """Return the traces in the `trace.jsonl` of a folder, by protocol.

    Args:
        path: The file.
        users: The scenario's number of users, if known.

    Raises:
        BadInput: The file is not as it was written (`digests.Damaged`), or not a trace (TraceError).
    """
    # Only "\n" ends a line, as when it was written. Universal newlines would accept a file that was changed.
    with checked(path).open(encoding="utf-8", newline="\n") as lines:
        return parse(lines, path, users)


def parse(lines: Iterable[str], path: Path, users: int | None = None) -> dict[str, Trace]:
    """Return the traces in the lines of a file, by protocol, without a check of its digest.

    Raises:
        TraceError: A line is wrong, or the file cannot be read.
    """
    model = _line_model(users)
    order: dict[str, _Order] = {}
    current: _Order | None = None
    number = 0
    try:
        for text in lines:
            number += 1
            kind, values = _parsed(model, text)
            if kind == "protocol":
                # Rows after a heading are its protocol's, up to the next heading.
                current = order.setdefault(values["name"], _Order(values["name"]))
                current.rows.timed_by = values["timed_by"]
            elif current is None:
                raise _RowError("a row of no protocol")
            else:
                current.add(_row(kind, values))
    except _RowError as error:
        raise TraceError(f"{path}:{number}: not a row of a trace: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: cannot be read ({reason(error)})") from None
    return {name: protocol.rows for name, protocol in order.items()}


def rows_of(lines: str, users: int) -> list[Row]:
    """Return the rows in some lines of a trace, each checked alone.

    Raises:
        TraceError: A line is not a row.
    """
    model = _line_model(users)
    try:
        return [_row(*_parsed(model, text)) for text in lines.splitlines()]
    except _RowError as error:
        raise TraceError(f"not rows of a trace: {error}") from None


def _row(kind: str, values: dict[str, Any]) -> Row:
    if kind not in ROWS:
        raise _RowError("a heading")
    if kind == "begin" and values["buffered"] and values["users"] == tuple(range(len(values["users"]))):
        values["users"] = range(len(values["users"]))
    row: Row = ROWS[kind](**values)
    if kind in RULES and not RULES[kind][0](row):
        raise _RowError(f"{kind}: expected {RULES[kind][1]}")
    return row


def _line_model(users: int | None) -> TypeAdapter[Any]:
    """Make the model of a line: a union of all kinds of rows."""

    def integer(minimum: int, maximum: int = LARGEST) -> Any:
        return Annotated[int, Field(ge=minimum, le=maximum)]

    last = LARGEST if users is None else users - 1
    natural, cause, user, party = integer(0), integer(-1), integer(0, last), integer(SERVER, last)
    # `Literal[...]` and `tuple[...]` of values that are known at run time only; a type checker refuses the
    # usual form.
    phase: Any = Literal.__getitem__(PHASES)
    source: Any = Literal.__getitem__(SOURCES)
    array: Any = tuple
    by_name = {"phase": phase, "lane": Literal.__getitem__(LANES), "cause": cause, "previous": cause}
    by_name |= {"user": user, "party": party, "sender": party, "to": party}
    # In step with `rows.py`: a row with a field of another annotation is a KeyError here, in each test that
    # reads a trace.
    by_hint = {
        "int": natural,
        "int | None": natural | None,
        "str": str,
        "bool": bool,
        "tuple[int, ...]": array[user, ...],
        "Sequence[int]": array[user, ...],
        "tuple[int, int, int, int]": array[natural, natural, natural, natural],
        "tuple[tuple[str, int], ...]": array[array[phase, natural], ...],
        "tuple[tuple[int, str, int], ...]": array[array[user, str, natural], ...],
        "tuple[tuple[str, str, int], ...]": array[array[phase, source, integer(0, LARGEST_FJ)], ...],
    }
    # Otherwise pydantic would read "1" and 1.0 as integers, and pass over a misspelt field.
    config = ConfigDict(strict=True, extra="forbid")
    facts: Any = {"row": Literal["protocol"], "name": str, "timed_by": (str | None, None)}
    models: list[Any] = [create_model("protocol", __config__=config, **facts)]
    for name, kind in ROWS.items():
        # Annotations of `rows.py` are texts, as it postpones their evaluation.
        hints = {key: hint.__forward_arg__ for key, hint in kind.__annotations__.items()}
        types: dict[str, Any] = {key: by_name.get(key) or by_hint[hint] for key, hint in hints.items()}
        types["row"] = Literal.__getitem__(name)
        models.append(create_model(name, __config__=config, **types))
    # The kind selects the model, so a line is checked against one of them, and an error is about its fields.
    line: Any = Annotated[reduce(or_, models), Field(discriminator="row")]
    return TypeAdapter(line)


def _parsed(model: TypeAdapter[Any], text: str) -> tuple[str, dict[str, Any]]:
    try:
        values = vars(model.validate_json(text))
    except ValidationError as errors:
        first = errors.errors()[0]
        # The line has no kind, or an unknown one, so no model has looked at its other fields.
        if first["type"].startswith("union_tag"):
            kind = shown(first["input"].get("row"))
            raise _RowError(f"row is {kind}, expected {', '.join(ROWS)} or protocol") from None
        raise _RowError(first_problem(errors)) from None
    return values.pop("row"), values


@dataclass(slots=True)
class _Order:
    """The rows of a protocol so far, and the order of its rounds."""

    protocol: str
    """Entry of the scenario."""
    rows: Trace = field(default_factory=Trace)
    """The rows."""
    begun: int = 0
    """Number of rounds that have begun."""
    decided: int = 0
    """Number of rounds that have an aggregate or were aborted."""
    ended: int = 0
    """Number of rounds that are over."""
    buffered: bool = False
    """An asynchronous run, which begins once for all of its aggregations."""

    def add(self, row: Row) -> None:
        """Add a row.

        Raises:
            _RowError: It cannot follow the rows before it.
        """
        number = len(self.rows)
        if isinstance(row, Begin):
            self._begin(row)
        elif not isinstance(row, Presence):
            # A buffer begins once, and its aggregations have no rows of a begin.
            if row.round >= self.begun and not self.buffered:
                raise _RowError(f"round {row.round} of {self.protocol} has not begun")
            # Reports walk from cause to cause. Such a walk ends because each cause is an earlier row.
            caused = not isinstance(row, Spent | CheckedIn) and row.cause >= number
            if caused or (isinstance(row, Step) and row.previous >= number):
                earlier = f"an earlier row of {self.protocol}, which has {number} so far"
                raise _RowError(f"its cause is not {earlier}")
            if isinstance(row, Ending):
                self._end(row)
        self.rows.add(row)

    def _begin(self, row: Begin) -> None:
        # A round begins when all before it have ended. A buffer begins once, and before any round.
        if self.buffered or not self.begun == self.ended == row.round or (self.begun and row.buffered):
            raise _RowError(f"{self.protocol} cannot begin round {row.round} here")
        self.begun, self.buffered = row.round + 1, row.buffered

    def _end(self, row: Ending) -> None:
        over = isinstance(row, End)
        # Two rows end a round. At its aggregate or abort as many rounds are decided as have ended, and at its
        # End one more.
        if row.round != self.ended or self.decided != self.ended + over:
            raise _RowError(f"round {row.round} of {self.protocol} cannot end here")
        self.ended += over
        self.decided += not over
