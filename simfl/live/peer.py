"""A user's connection as the server holds it; of a stranger until its hello."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any

from simfl.live.connection import Connection
from simfl.live.hello import Challenge
from simfl.live.wire import Malformed

if TYPE_CHECKING:
    from simfl.live.door import Door

HELLO_S = 5.0
"""Until when whoever connects must have said who it is."""
STRANGERS = 64
"""Connections of nobody that may be open at once."""


class Peer(Connection):
    """The server's end. As long as nobody knows whose it is, it must say so soon, and they are few.

    nonce: of the challenge. looks: the user does not take part. answered: its pings.
    """

    owner: Door
    looks = False
    answered = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.nonce = secrets.token_hex(16)
        self.say(Challenge(self.nonce))
        self.owner.strangers.add(self)
        if len(self.owner.strangers) > STRANGERS:
            self.owner.malformed(self, Malformed(f"more than {STRANGERS} strangers at once"))
        else:
            asyncio.get_running_loop().call_later(HELLO_S, self._expect_hello)

    def connection_lost(self, error: Exception | None) -> None:
        if self.user < 0 and not self.closing:
            self.owner.count("left without a hello: another certificate was pinned, or it was nobody's")
        super().connection_lost(error)

    def _expect_hello(self) -> None:
        if self.user < 0 and not self.closing:
            self.owner.malformed(self, Malformed(f"no hello within {HELLO_S:g} s"))
