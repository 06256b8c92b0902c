"""The words that protocols, messages and machines state of themselves, checked when a class is defined.

So a misspelt word ends in a message with its file and class, and not in the middle of a run.
"""

import sys
from collections.abc import Collection, Iterable

from simfl.errors import did_you_mean

SIGNED_POINTS = ("advertise", "shares", "training", "upload", "consistency", "recovery")
"""The most points of a round that a scenario knows: those of a protocol whose survivors sign."""
SIGNED_STAGES = ("advertise", "shares", "upload", "consistency", "recovery")
"""The same of stages, each of which has a deadline."""


def place_of(kind: type) -> str:
    """Return where a class stands, as messages begin."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or kind.__module__
    return f"{file}: {kind.__name__}"


def check_known(kind: type, what: str, values: Iterable[object], known: Collection[str]) -> None:
    """Check values that a class states. TypeError names its file, the class, the value and those that are
    known."""
    for value in values:
        if value not in known:
            guess = did_you_mean(value, known)
            raise TypeError(f"{place_of(kind)}: {what} {value!r} is none of {', '.join(known)}{guess}")
