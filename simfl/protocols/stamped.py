"""The messages of asynchronous LightSecAgg: each names the mask it is about by its stamp (App. F.3)."""

from __future__ import annotations

from dataclasses import dataclass

from simfl.dataplane.handles import Handle
from simfl.protocols.machine import INT_BYTES, Message


@dataclass(frozen=True, slots=True)
class Start(Message):
    """Begin a cycle on version t_i."""

    kind = "begin"
    phase = "offline"
    name: str
    version: int

    @property
    def size_bytes(self) -> int:
        return 2 * INT_BYTES

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
    def size_bytes(self) -> int:
        return self.sealed.size_bytes + INT_BYTES * (2 + len(self.to))

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

    @property
    def size_bytes(self) -> int:
        return self.sealed.size_bytes + 3 * INT_BYTES * len(self.names)


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
    def size_bytes(self) -> int:
        return INT_BYTES * (2 + 3 * len(self.masks))

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
    def size_bytes(self) -> int:
        return self.content.size_bytes + INT_BYTES

    @property
    def about(self) -> str:
        return recovery(self.number)


def recovery(number: int) -> str:
    """The name of the number-th recovery of a run, from 0, where a mask's would be `user.cycle`."""
    return f"r{number}"
