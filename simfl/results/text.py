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
    """A value in a message, shortened where it is long."""
    return _short.repr(value)


def printable(text: str) -> str:
    r"""Text for a terminal: what moves a cursor, sets a colour or turns the writing round is spelled out.

    >>> print(printable("a\x1b[31mb\u202ec"))
    a\x1b[31mb\u202ec
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign == "\n" else _escaped(sign) for sign in text)


def _escaped(sign: str) -> str:
    return " " if sign.isspace() else repr(sign)[1:-1]


_FORMULA = re.compile(r"[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")


def write_csv(file: IO[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write rows of a table; text that a spreadsheet would take for a formula gets a ' before it."""
    csv.writer(file).writerows([_cell(value) for value in row] for row in rows)


def _cell(value: Any) -> Any:
    if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value
