"""Text that comes from files, made fit for a terminal, for a message and for a spreadsheet."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from reprlib import Repr
from typing import IO, Any

_short = Repr()
_short.maxstring = _short.maxother = _short.maxlong = 60


def shown(value: Any) -> str:
    """Return a value as a message has it, shortened where it is long."""
    return _short.repr(value)


def printable(text: str) -> str:
    r"""Return text for a terminal: characters that act on one (colour, cursor, direction) are spelled out.

    >>> print(printable("a\x1b[31mb\u202ec"))
    a\x1b[31mb\u202ec
    """
    if text.isprintable():
        return text
    escaped = (" " if sign.isspace() else repr(sign)[1:-1] for sign in text)
    return "".join(s if s.isprintable() or s == "\n" else e for s, e in zip(text, escaped, strict=True))


_FORMULA = re.compile(r"[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")


def write_csv(file: IO[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write rows of a table; text that a spreadsheet would take for a formula gets a ' before it."""
    csv.writer(file).writerows([_cell(value) for value in row] for row in rows)


def _cell(value: Any) -> Any:
    if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value
