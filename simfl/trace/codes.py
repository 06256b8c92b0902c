"""Codes and identities in rows of a trace: which update or recovery, and why something was thrown away."""

import re
from enum import StrEnum
from functools import lru_cache
from sys import intern
from typing import NamedTuple, Self


class UpdateId(NamedTuple):
    """A user's update in an asynchronous run; `cycle`: how many the user began before. In rows `3.7`.

    >>> str(UpdateId(user=3, cycle=7))
    '3.7'
    """

    user: int
    cycle: int

    def __str__(self) -> str:
        return intern(f"{self.user}.{self.cycle}")  # one string for all rows of an update


class RecoveryId(NamedTuple):
    """A recovery of an asynchronous run, numbered from 0. In rows `r4`."""

    number: int

    def __str__(self) -> str:
        return intern(f"r{self.number}")


Subject = UpdateId | RecoveryId | None
"""The update or recovery of a message, timer or step; None in synchronous rounds, where the user says it."""


@lru_cache(maxsize=1024)  # a message's name is asked for at its sending, its arrival and its step
def name_of(subject: Subject) -> str:
    """Return the name of a subject in rows (`about`): empty if there is none."""
    return "" if subject is None else str(subject)


class StepsDone(NamedTuple):
    """The minibatch steps of a local training that was cut, of so many in all: `what` of its row, which is
    empty for a whole training.

    >>> str(StepsDone(3, 8)), StepsDone.read("3 of 8 steps"), StepsDone.read("")
    ('3 of 8 steps', StepsDone(steps=3, whole=8), None)
    """

    steps: int
    whole: int

    def __str__(self) -> str:
        return f"{self.steps} of {self.whole} steps"

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Return what a text says; None if it is none of these."""
        found = re.fullmatch(r"([1-9][0-9]{0,14}) of ([1-9][0-9]{0,14}) steps", text)
        steps, whole = map(int, found.groups()) if found else (0, 0)
        return cls(steps, whole) if steps < whole else None


class Reason(StrEnum):
    """Reasons to ignore a message or a timer; `why` of its `Ignored` row begins with one."""

    OUT_OF_PHASE = "out of phase"  # the receiver's state does not take it
    UNKNOWN = "unknown"  # the receiver never takes this kind
    EARLY = "early"
    LATE = "late"
    REPEATED = "a second one"
    UNEXPECTED = "unexpected"  # the stage waits for such messages, but not of this user
    STRANGER = "a stranger's"  # its sender is none of the run's users, or did not enrol
    NOT_IN_FLIGHT = "given up, or came before"  # the server does not wait for this update of the user
    NO_MASK = "its mask was not shared"
    NOT_BEGUN = "its cycle was refused"
    NO_SHARE = "no share to add"  # the receiver does not hold a share that is asked for
    STALE_TIMER = "stale"


class Discarded(StrEnum):
    """Reasons to throw an update out of the buffer; `why` of its `Ignored` row begins with one."""

    STALE = "stale"
    ABORTED = "its recovery was aborted"


class Refusal(StrEnum):
    """Reasons to refuse what stands for others' signatures, or a set of survivors; `why` of its `Refused` row
    begins with one."""

    FEW = "too few signatures"
    DOUBLED = "a signature twice"
    STRANGER = "the signature of no survivor"
    FORGED = "a signature does not verify"
    UNSIGNED = "keys without a signature"
    SPLIT = "a batch is split"
