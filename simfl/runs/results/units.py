"""Numbers and lists as text for people."""

from collections.abc import Sequence
from decimal import Decimal


def three_figures(value: float) -> str:
    """Return a number with three figures, or more before its point.

    >>> three_figures(0.63), three_figures(12.34), three_figures(1234.5)
    ('0.630', '12.3', '1234')
    """
    return f"{value:.{3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0}f}"


def seconds(ns: float) -> str:
    """Return nanoseconds in the unit that fits, in three figures.

    >>> seconds(3_350_000_000), seconds(12_155), seconds(0)
    ('3.35 s', '12.2 µs', '0 s')
    """
    for unit, size in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if ns >= size:
            return f"{three_figures(ns / size)} {unit}"
    return f"{ns:.0f} ns" if ns else "0 s"


def whole(number: int) -> str:
    """Return a whole number in digits, of ten millions or more as a power of ten.

    >>> whole(9_999_999), whole(10**400)
    ('9999999', '1.0e+400')
    """
    # A family of sets may have thousands of digits, which no float holds.
    return str(number) if number < 10**7 else format(Decimal(number), ".1e")


def percent(part: float, whole: float) -> str:
    """Return a share of a whole as text; below one percent with a digit.

    >>> percent(42, 100), percent(4, 1000), percent(4, 100_000), percent(0, 1)
    ('42 %', '0.4 %', '<0.1 %', '0 %')
    """
    share = 100 * part / whole if whole else 0.0
    if 0 < share < 0.05:
        return "<0.1 %"
    # "0 %" is kept for none at all.
    return f"{share:.1f} %" if 0 < share < 1 else f"{share:.0f} %"


def listed(values: Sequence[object], most: int) -> str:
    """Return at most `most` values with commas, and the number of the others.

    >>> listed(range(9), 3)
    '0, 1, 2 and 6 more'
    """
    more = f" and {len(values) - most} more" if len(values) > most else ""
    return ", ".join(map(str, values[:most])) + more
