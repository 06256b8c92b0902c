"""Numbers with a unit, as users write them: `5 ms`, `10 Mbit/s`, `20%`.

Each key of a scenario has one unit, to which its number is converted when it is read. An ambiguous unit is
refused, with both ways to write it. Products are decimal: 5 ms are 0.005 s.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pydantic import BeforeValidator, GetJsonSchemaHandler
from pydantic_core import CoreSchema

_NUMBER = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
# A unit begins with none of the characters of numbers: 1,000 and 12:30 are no numbers with a unit, and
# `meant` proposes another spelling for the first.
_WITH_UNIT = re.compile(rf"({_NUMBER})\s*([^0-9\s.,_:+-].*)")
_BITS = {"": "1e-6", "k": "1e-3", "M": "1", "G": "1e3", "T": "1e6"}
_BYTES = {"k": "1e-6", "M": "1e-3", "G": "1", "T": "1e3"}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}

UNITS: Mapping[str, Mapping[str, str]] = {
    "s": {
        **dict.fromkeys(("s", "sec", "second", "seconds"), "1"),
        # Two letters that look alike: the micro sign of keyboards, and the Greek mu.
        **{"ns": "1e-9", "us": "1e-6", "µs": "1e-6", "μs": "1e-6", "ms": "1e-3"},
        **dict.fromkeys(("min", "minute", "minutes"), "60"),
        **dict.fromkeys(("h", "hour", "hours"), "3600"),
        **dict.fromkeys(("d", "day", "days"), "86400"),
    },
    "Mbit/s": {
        **{f"{k}{bit}": by for k, by in _BITS.items() for bit in ("bit/s", "bps", "b/s")},
        **{f"{k}{byte}": str(8 * Decimal(by)) for k, by in _BITS.items() for byte in ("B/s", "Bps")},
    },
    "GB": {
        **{f"{k}B": by for k, by in _BYTES.items()},
        **{f"{k}B": str(Decimal(by) / 10**9) for k, by in _BINARY.items()},
    },
    "J": {"J": "1", "kJ": "1e3", "MJ": "1e6", "mWh": "3.6", "Wh": "3600", "kWh": "3.6e6"},
    "1": {"%": "0.01", "percent": "0.01"},
}
"""A key's unit -> the units that may be written in its place, each with its factor."""
_KNOWN = {
    "s": "ns, us, ms, s, min, h, d",
    "Mbit/s": "bit/s, kbit/s, Mbit/s, Gbit/s, kB/s, MB/s, GB/s",
    "GB": "kB, MB, GB, TB, KiB, MiB, GiB, TiB",
    "J": "J, kJ, MJ, mWh, Wh, kWh",
    "1": "%",
}


def in_unit(value: Any, unit: str) -> Any:
    """Return the number of a text such as `5 ms` in a unit; any value but a number with a unit as it is.

    >>> in_unit("5 ms", "s"), in_unit("1.5 Gbit/s", "Mbit/s"), in_unit("20%", "1"), in_unit(3, "s")
    (0.005, 1500.0, 0.2, 3)
    """
    # A number in quotes is text.
    if not isinstance(value, str) or re.fullmatch(_NUMBER, value):
        return value
    match = _WITH_UNIT.fullmatch(value.strip())
    if match is None:
        return value
    number, written = match.groups()
    if written == "m" and unit == "s":
        raise ValueError(f"{value!r} may be minutes or milliseconds: write {number}min or {number}ms")
    if written not in UNITS[unit]:
        what = "a fraction takes a number from 0 to 1, or" if unit == "1" else "its units are"
        raise ValueError(f"unknown unit {written[:20]!r}: {what} {_KNOWN[unit]}")
    # Exact until the one conversion: 5 ms is the float nearest to 0.005, which 5 * 1e-3 need not be
    # (test_quantities.py: test_a_quantity_is_its_nearest_float).
    return float(Decimal(number) * Decimal(UNITS[unit][written]))


def meant(text: str) -> str | None:
    """Return the plain number that a text may mean, for a message: 10k, 1,000 and 1_000 are not numbers here.

    >>> meant("10k"), meant("1,000"), meant("'5'"), meant("ten")
    ('10000', '1000', None, None)
    """
    bare = text.strip()
    if re.fullmatch(r"[-+]?[0-9]{1,3}([,_' ][0-9]{3})+", bare):
        return re.sub("[,_' ]", "", bare)
    if match := re.fullmatch(rf"({_NUMBER})\s*([kKM]?)", bare):
        value = Decimal(match[1]) * {"": 1, "k": 1000, "K": 1000, "M": 10**6}[match[2]]
        if abs(value) < 10**15:
            return f"{value.normalize():f}"
    return None


@dataclass(frozen=True)
class InUnit(BeforeValidator):
    """An annotation: a text of a number with a unit becomes the number in the key's own unit."""

    unit: str = ""
    """The key's unit, a key of `UNITS`."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        units = "|".join(re.escape(name) for name in UNITS[self.unit])
        return {"anyOf": [handler(schema), {"type": "string", "pattern": f"^ *{_NUMBER} *({units}) *$"}]}


def unit(name: str) -> InUnit:
    """Return the annotation of numbers in a unit, a key of `UNITS`."""
    return InUnit(lambda value: in_unit(value, name), unit=name)
