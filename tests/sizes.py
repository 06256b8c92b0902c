"""The tiers of the suite, and the number of random examples in each; CONTRIBUTING.md says what they hold."""

import os
from collections.abc import Iterable

import pytest

TIER = os.environ.get("TIER", "quick")  # or "ci" or "all": as `make test-ci` and `make test-all` set it
THOROUGH = TIER == "all"
ONE_IN = {"quick": 12, "ci": 4, "all": 1}[TIER]


def examples(count: int) -> int:
    """Return how many of so many random examples a test tries."""
    return max(count // ONE_IN, min(count, 5))


def left_to_ci(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return what `make test` leaves out: all cases of a test marked `ci`, all `but` some, or `only` some.

    A word of a mark that no case has is a mistake, and would move cases from one tier to the other unseen.
    """
    out, found = [], dict[tuple[object, str, str], bool]()
    for item in items:
        case = item.name[item.name.find("[") :] if item.name.endswith("]") else ""
        for mark in item.iter_markers("ci"):
            but, only = mark.kwargs.get("but", ()), mark.kwargs.get("only", ())
            for word in (*but, *only):
                key = (item.path, item.name.partition("[")[0], word)
                found[key] = found.get(key, False) or word in case
            if any(word in case for word in only) if only else not any(word in case for word in but):
                out.append(item)
    assert all(found.values()), f"no case has it: {[key for key, seen in found.items() if not seen]}"
    return out
