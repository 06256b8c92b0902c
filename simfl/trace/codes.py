"""Codes in rows of a trace: names of updates and recoveries, and reasons to ignore or refuse messages."""

import re
from enum import StrEnum
from functools import lru_cache
from sys import intern
from typing import NamedTuple, Self


class UpdateId(NamedTuple):
    """A user's update in an asynchronous run. In rows `3.7`.

    >>> str(UpdateId(user=3, cycle=7))
    '3.7'
    """

    user: int
    """Number of the user."""
    cycle: int
    """Number of cycles that the user began before."""

    def __str__(self) -> str:
        # One string for all rows of an update.
        return intern(f"{self.user}.{self.cycle}")


class RecoveryId(NamedTuple):
    """A recovery of an asynchronous run. In rows `r4`."""

    number: int
    """From 0."""

    def __str__(self) -> str:
        return intern(f"r{self.number}")


Subject = UpdateId | RecoveryId | None
"""The update or recovery of a message, timer or step; None in synchronous rounds, where the user suffices."""


# A message's name is needed at its sending, its arrival and its step.
@lru_cache(maxsize=1024)
def name_of(subject: Subject) -> str:
    """Return the name of a subject in rows (`about`); empty for None."""
    return "" if subject is None else str(subject)


class StepsDone(NamedTuple):
    """The minibatches of a cut training: `what` of its row, which is empty for a whole training.

    >>> str(StepsDone(3, 8)), StepsDone.read("3 of 8 steps"), StepsDone.read("")
    ('3 of 8 steps', StepsDone(steps=3, total=8), None)
    """

    steps: int
    """Minibatches that were done."""
    total: int
    """Minibatches of the whole training."""

    def __str__(self) -> str:
        return f"{self.steps} of {self.total} steps"

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Read a `what`; return None for another text."""
        # Exactly the form of `__str__`, without leading zeros, and with so few digits that `int` is cheap for
        # any file.
        match = re.fullmatch(r"([1-9][0-9]{0,14}) of ([1-9][0-9]{0,14}) steps", text)
        steps, total = map(int, match.groups()) if match else (0, 0)
        # A full training has an empty text, so "8 of 8 steps" is no row that the engine writes.
        return cls(steps, total) if steps < total else None


# The values of these three enumerations stand in stored traces and in golden digests, so they never change.
class Reason(StrEnum):
    """Reasons to ignore a message or a timer; `why` of its `Ignored` row begins with one."""

    OUT_OF_PHASE = "out of phase"
    """The receiver's state does not accept it."""
    UNKNOWN = "unknown"
    """The receiver never accepts this kind."""
    EARLY = "early"
    LATE = "late"
    REPEATED = "a second one"
    UNEXPECTED = "unexpected"
    """The stage waits for such messages, but not of this user."""
    STRANGER = "a stranger's"
    """Its sender is not one of the run's users, or did not enrol."""
    NOT_IN_FLIGHT = "given up, or came before"
    """The server does not wait for this update of the user."""
    NO_MASK = "its mask was not shared"
    NOT_BEGUN = "its cycle was refused"
    NO_SHARE = "no share to add"
    """The receiver does not hold a share that is requested."""
    STALE_TIMER = "stale"


class Discarded(StrEnum):
    """Reasons to discard an update from the buffer; `why` of its `Ignored` row begins with one."""

    STALE = "stale"
    ABORTED = "its recovery was aborted"


class Refusal(StrEnum):
    """Reasons to refuse signatures, or a set of survivors; `why` of its `Refused` row begins with one."""

    FEW = "too few signatures"
    DOUBLED = "a signature twice"
    STRANGER = "the signature of no survivor"
    FORGED = "a signature does not verify"
    UNSIGNED = "keys without a signature"
    SPLIT = "a batch is split"
