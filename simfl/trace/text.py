"""Text and values from files, made safe for a terminal, for a message and for a spreadsheet."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from reprlib import Repr
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    # `simfl --help` needs this module, and importing pydantic is a fifth of its time.
    from pydantic import ValidationError

_short = Repr()
# This also bounds how deep and how wide a nested value is shown, by the defaults of `Repr`: a value of a file
# may be of any size (test_text.py: test_long_and_deep_values_are_shortened).
_short.maxstring = _short.maxother = _short.maxlong = 60


def shown(value: Any) -> str:
    """Return a value for a message, shortened where it is long."""
    return _short.repr(value)


def printable(text: str) -> str:
    r"""Return text for a terminal: characters that act on one (colour, cursor, direction) are spelled out.

    >>> print(printable("a\x1b[31mb\u202ec"))
    a\x1b[31mb\u202ec
    """
    # The case of almost all texts.
    if text.isprintable():
        return text
    # A line of a message may have several lines, so only "\n" stays; other spaces, such as "\r" that would
    # overwrite a line, become a blank.
    escaped = (" " if sign.isspace() else repr(sign)[1:-1] for sign in text)
    return "".join(s if s.isprintable() or s == "\n" else e for s, e in zip(text, escaped, strict=True))


def first_problem(errors: ValidationError) -> str:
    """Return the first problem of a value with a model: its key, the value, and the expected values."""
    first = errors.errors(include_url=False)[0]
    kind, message, value = first["type"], first["msg"], shown(first["input"])
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    key = "".join(parts).removeprefix(".")
    subject = f"{key} is {value}" if key else value
    match kind:
        case "json_invalid":
            return f"not JSON ({message.removeprefix('Invalid JSON: ')})"
        case "missing":
            return f"{key} is missing"
        case "extra_forbidden":
            return f"{key} is not a field of it"
        case "value_error":
            return f"{key}: {message.removeprefix('Value error, ')}"
        case "model_type" | "dict_type":
            return f"{subject}, expected a mapping"
    # Most messages of pydantic begin so. Another one stands after a colon as it is.
    expected = message.removeprefix("Input should be ")
    return f"{subject}{', expected' if expected != message else ':'} {expected}"


# The first characters by which spreadsheets recognise a formula, which may call a program or open an address.
# Names of protocols and reasons come from files. A number may begin with a sign, and is left as it is
# (test_text.py: test_numbers_and_names_are_left_as_they_are).
_FORMULA = re.compile(r"[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")


def write_csv(file: IO[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write rows of a table; text that a spreadsheet would read as a formula gets a ' before it."""

    def cell(value: Any) -> Any:
        formula = isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value)
        return f"'{value}" if formula else value

    csv.writer(file).writerows([cell(value) for value in row] for row in rows)
