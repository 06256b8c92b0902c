"""The server of a masking protocol: keys first, uploads folded as they come, masks taken off at the end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from simfl.dataplane.handles import U8, U32, Handle
from simfl.dataplane.ops import Ops
from simfl.protocols.index_views import (
    Users,
    users_among,
)
from simfl.protocols.keyed_messages import (
    TAG_BYTES,
    Advertise,
    Answer,
    Invite,
    MaskedUpload,
    Shares,
    Survivors,
)
from simfl.protocols.machine import (
    Effects,
    Member,
    Params,
    Result,
    Send,
    misshapen,
)
from simfl.protocols.server import Server


class MaskedServer(Server):
    """The part of a masking protocol's server that all have: keys first, uploads folded as they come."""

    def __init__(self, users: Iterable[int], params: Params, ops: Ops) -> None:
        super().__init__(users, ops)
        self.params = params
        if self.needed("recovery") < 2:
            raise ValueError("a sum over one user is that user's update: at least 2 must be needed")
        self.sum: Handle | None = None
        self.survivors: tuple[int, ...] = ()

    def start(self) -> Effects:
        return [*self.open_stage("advertise", self.users), *(Send(u, Invite()) for u in self.users)]

    def reject_reason(self, sender: int, message: Any) -> str:
        p = self.params
        match message:
            case Advertise(publics):
                return misshapen(publics, self.keys, 32, U8)
            case Shares(sealed):
                circle = len(self.circle(sender))
                return misshapen(sealed, circle - 1, self.share_bytes(circle) + TAG_BYTES, U8)
            case MaskedUpload(masked):
                return misshapen(masked, 1, p.d + 1, U32)
            case Answer(content, missing):
                return self.answer_flaw(sender, content, missing)
        return "not what its kind says"

    def keep(self, sender: int, message: Any) -> Any:
        if not isinstance(message, MaskedUpload):
            return message
        self.sum = message.masked if self.sum is None else self.ops.add(self.sum, message.masked)
        return None  # folded: an upload is never kept

    def ask_survivors(self, got: dict[int, None]) -> Effects:
        """Tell the survivors who they are; their answers are what recovery needs."""
        self.ops.phase("recovery")
        self.survivors = tuple(got)
        made: dict[int, Survivors] = {}
        effects: Effects = []
        for user in got:
            circle = self.circle(user)
            if id(circle) not in made:
                made[id(circle)] = Survivors(users_among(circle, got))
            effects.append(Send(user, made[id(circle)]))
        return [*self.open_stage("recovery", got), *effects]

    keys: ClassVar[int]
    """Public keys that a user advertises."""

    @abstractmethod
    def circle(self, user: int) -> Users:
        """The users, itself included, whom a user was told of: it must hear of no others."""

    @abstractmethod
    def share_bytes(self, circle: int) -> int:
        """Length of one share, before it is sealed, in a circle of so many users."""

    @abstractmethod
    def answer_flaw(self, user: int, content: Handle, missing: tuple[int, ...]) -> str:
        """What is wrong with an answer, or nothing."""

    def unmasked(self, masks_off: Callable[[Handle], Handle]) -> Effects:
        """The result: the folded sum with its masks taken off, and the mean update."""
        assert self.sum is not None
        total = masks_off(self.sum)
        mean = self.ops.dequantise(total, self.params.levels, None)
        return [Result(total, mean, tuple(map(Member, self.survivors)))]
