"""The tiers of the suite, and the number of random examples in each; CONTRIBUTING.md says what they hold."""

import os
from collections.abc import Iterable

TIER = os.environ.get("TIER", "quick")  # or "ci" or "all": as `make test-ci` and `make test-all` set it
THOROUGH = TIER == "all"
ONE_IN = {"quick": 12, "ci": 4, "all": 1}[TIER]


def examples(count: int) -> int:
    """Return how many of so many random examples a test tries."""
    return max(count // ONE_IN, min(count, 5))


def left_to_ci(name: str, but: Iterable[str] = (), only: Iterable[str] = ()) -> bool:
    """Return whether `make test` leaves out a test marked `ci`: all cases, `but` some, or `only` some.

    >>> left_to_ci("test_sums[paper-fedavg]", but=["fedavg"]), left_to_ci("test_sums[paper-fedavg]")
    (False, True)
    """
    case = name[name.find("[") :] if name.endswith("]") else ""
    return any(part in case for part in only) if only else not any(part in case for part in but)
