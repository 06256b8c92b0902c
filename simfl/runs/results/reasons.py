"""The reasons of failed and skipped rounds, counted."""

import re
from collections.abc import Iterable

NUMBER = re.compile(r"(\d+(?:\.\d+)?)")


def reasons(listed: Iterable[str | None]) -> list[tuple[str, int]]:
    """Return the reasons of failed and skipped rounds with their counts, the most frequent first.

    Those that differ in numbers alone are one, with the ranges of these.
    """
    alike: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for reason in listed:
        if reason is not None:
            parts = NUMBER.split(reason)
            alike.setdefault(tuple(parts[::2]), []).append(tuple(parts[1::2]))
    found = [(_in_ranges(words, numbers), len(numbers)) for words, numbers in alike.items()]
    return sorted(found, key=lambda reason: -reason[1])


def _in_ranges(words: tuple[str, ...], numbers: list[tuple[str, ...]]) -> str:
    """Put numbers, or where they differ their range, between words."""
    text = words[0]
    for values, after in zip(zip(*numbers, strict=True), words[1:], strict=True):
        low, high = min(values, key=float), max(values, key=float)
        text += (low if low == high else f"{low} to {high}") + after
    return text
