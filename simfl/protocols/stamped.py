"""The messages of asynchronous LightSecAgg: each names the mask it is about by its stamp (App. F.3)."""

from __future__ import annotations

from dataclasses import dataclass

from simfl.dataplane.handles import Handle
from simfl.protocols.machine import Message


@dataclass(frozen=True, slots=True)
class Start(Message):
    """Begin a cycle on version t_i."""

    kind = "begin"
    phase = "offline"
    name: str
    version: int

    @property
    def about(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class MaskShares(Message):
    """The sealed coded shares of one mask (eq. 28): row k is for user to[k]."""

    kind = "shares"
    phase = "offline"
    relayed = True
    point = "shares"
    name: str
    version: int
    to: tuple[int, ...]
    sealed: Handle

    @property
    def about(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class MaskInbox(Message):
    """The receiver's shares of others' masks: row k is of the mask names[k], made on versions[k]."""

    kind = "inbox"
    phase = "offline"
    relayed = True
    names: tuple[str, ...]
    versions: tuple[int, ...]
    sealed: Handle


@dataclass(frozen=True, slots=True)
class Recover(Message):
    """The server asks for the weighted sum of these masks' coded shares."""

    kind = "recover"
    phase = "recovery"
    number: int
    version: int
    masks: tuple[str, ...]
    weights: tuple[int, ...]

    @property
    def about(self) -> str:
        return recovery(self.number)


@dataclass(frozen=True, slots=True)
class SumOfShares(Message):
    """A user's answer."""

    kind = "answer"
    phase = "recovery"
    point = "recovery"
    number: int
    content: Handle

    @property
    def about(self) -> str:
        return recovery(self.number)


def recovery(number: int) -> str:
    """The name of the number-th recovery of a run, from 0, where a mask's would be `user.cycle`."""
    return f"r{number}"
