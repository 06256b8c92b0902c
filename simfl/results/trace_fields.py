"""The rows of a trace from JSON: each field by a parser of its type and range.

A trace has millions of rows, so the parsers of a kind's fields are chosen once. What is wrong with a row is
found by a second look at it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from simfl.results.text import shown
from simfl.results.trace import LANES, PHASES, SERVER, Row

LARGEST = 10**24
"""Of all integers: as nanoseconds thirty million years, and far from what a float cannot hold."""


class RowError(ValueError):
    """A line that is not a row; the text says what was found and what was expected."""


@dataclass(frozen=True, slots=True)
class Parser:
    """`parse` returns a field's value from JSON; raises ValueError, KeyError or TypeError if it is unfit."""

    parse: Callable[[Any], Any]
    expected: str


def _integer(least: int, most: int = LARGEST) -> Parser:
    def parse(value: Any) -> int:
        if type(value) is int and least <= value <= most:  # a bool is not of type int, nor is 1.0
            return value
        raise ValueError

    bound = f"of at least {least}" if most == LARGEST else f"from {least} to {most}"
    return Parser(parse, f"an integer {bound}")


def _one_of(names: tuple[str, ...]) -> Parser:
    return Parser({name: name for name in names}.__getitem__, " or ".join(names))


def _optional(of: Parser) -> Parser:
    parse = of.parse
    return Parser(lambda value: None if value is None else parse(value), f"{of.expected}, or null")


def _list(of: Parser) -> Parser:
    parse = of.parse

    def parse_all(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise TypeError
        return tuple([parse(inner) for inner in value])

    return Parser(parse_all, f"a list of [{of.expected}]")


def _tuple(*of: Parser) -> Parser:
    parsers = [parser.parse for parser in of]

    def parse_each(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise TypeError
        return tuple([parse(inner) for parse, inner in zip(parsers, value, strict=True)])

    return Parser(parse_each, ", ".join(parser.expected for parser in of))


def _bool(value: Any) -> bool:
    if type(value) is bool:
        return value
    raise TypeError


NATURAL = _integer(0)
TEXT = Parser(sys.intern, "text")  # takes text only, and a name that recurs is kept once
PHASE = _one_of(PHASES)
BY_NAME = {"phase": PHASE, "lane": _one_of(LANES), "cause": _integer(-1), "previous": _integer(-1)}


def _parser(name: str, hint: str, users: int | None) -> Parser:
    """The parser of a row's field, by its name and type."""
    last = LARGEST if users is None else users - 1
    user, party = _integer(0, last), _integer(SERVER, last)
    by_name = BY_NAME | {"user": user, "party": party, "sender": party, "to": party}
    by_hint = {
        "int": NATURAL,
        "int | None": _optional(NATURAL),
        "str": TEXT,
        "bool": Parser(_bool, "true or false"),
        "tuple[int, ...]": _list(user),
        "tuple[int, int, int, int]": _tuple(NATURAL, NATURAL, NATURAL, NATURAL),
        "tuple[tuple[str, int], ...]": _list(_tuple(PHASE, NATURAL)),
        "tuple[tuple[int, str, int], ...]": _list(_tuple(user, TEXT, NATURAL)),
    }
    return by_name.get(name) or by_hint[hint]


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


def row_reader(name: str, kind: type[Any], users: int | None) -> Callable[[dict[str, Any]], Row]:
    """Make a function that turns the values of a line into a row of a kind, or raises RowError.

    users: how many there are, if that is known.
    """
    fields = {key: _parser(key, hint.__forward_arg__, users) for key, hint in kind.__annotations__.items()}
    parsers = [parser.parse for parser in fields.values()]
    pick = itemgetter(*fields)
    holds, _ = RULES.get(name, (lambda row: True, ""))

    def read_row(values: dict[str, Any]) -> Row:
        try:
            row: Row = kind._make([parse(v) for parse, v in zip(parsers, pick(values), strict=True)])
            if len(values) == len(parsers) and holds(row):
                return row
        except (KeyError, TypeError, ValueError):
            pass
        raise RowError(_problem(name, fields, values))

    return read_row


def _problem(name: str, fields: dict[str, Parser], values: dict[str, Any]) -> str:
    """The first thing that is wrong with the values of a row."""
    for key, parser in fields.items():
        if key not in values:
            return f"{name}.{key} is missing"
        try:
            parser.parse(values[key])
        except (KeyError, TypeError, ValueError):
            return f"{name}.{key} is {shown(values[key])}, expected {parser.expected}"
    for key in values:
        if key not in fields:
            return f"{name}.{key} is not a field of this row"
    return f"{name}: expected {RULES[name][1]}"
