"""Numbers as a person reads them: three figures and a unit."""

from __future__ import annotations


def seconds(ns: float) -> str:
    """Nanoseconds in the unit that fits: `3.35 s`, `40.2 ms`, `12.2 µs`, `0 s`."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if ns >= size:
            return f"{_three(ns / size)} {unit}"
    return f"{ns:.0f} ns" if ns else "0 s"


def size(count: float) -> str:
    """Bytes in the decimal unit that fits: `2.61 kB`."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= scale:
            return f"{_three(count / scale)} {unit}"
    return f"{count:.0f} B"


def percent(part: float, whole: float) -> str:
    """A share, `42 %`; below one percent, `0.4 %`."""
    share = 100 * part / whole if whole else 0.0
    return f"{share:.1f} %" if 0 < share < 1 else f"{share:.0f} %"


def _three(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"
