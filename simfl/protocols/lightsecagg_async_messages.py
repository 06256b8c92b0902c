"""The messages of asynchronous LightSecAgg: a mask is known by the update that it hides (App. F.3)."""

from dataclasses import dataclass

from simfl.dataplane.handles import Handle
from simfl.protocols.buffered_server import UpdateMessage
from simfl.protocols.machine import Message, Number
from simfl.trace.codes import RecoveryId, Subject, UpdateId


@dataclass(frozen=True, slots=True)
class Start(UpdateMessage):
    kind, phase = "begin", "offline"


@dataclass(frozen=True, slots=True)
class MaskShares(UpdateMessage):
    """The sealed coded shares of one mask (eq. 28): row k is for user to[k]."""

    kind, phase, point, relayed = "shares", "offline", "shares", True
    to: tuple[int, ...]
    sealed: Handle


@dataclass(frozen=True, slots=True)
class MaskInbox(Message):
    """The receiver's shares of others' masks: row k is of the mask of masks[k], made on versions[k]."""

    kind, phase, relayed = "inbox", "offline", True
    masks: tuple[UpdateId, ...]
    versions: tuple[Number, ...]
    sealed: Handle


@dataclass(frozen=True, slots=True)
class RecoveryMessage(Message):
    recovery: RecoveryId

    @property
    def subject(self) -> Subject:
        return self.recovery


@dataclass(frozen=True, slots=True)
class Recover(RecoveryMessage):
    """The server asks for the weighted sum of these masks' coded shares."""

    kind, phase = "recover", "recovery"
    version: int
    masks: tuple[UpdateId, ...]
    weights: tuple[Number, ...]


@dataclass(frozen=True, slots=True)
class SumOfShares(RecoveryMessage):
    kind, phase, point = "answer", "recovery", "recovery"
    content: Handle
