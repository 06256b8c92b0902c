"""A user's connection as the server holds it; of a stranger until its hello."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Any

from simfl.live.connection import QUEUE, Connection
from simfl.live.hello import Challenge
from simfl.live.wire import Malformed

if TYPE_CHECKING:
    from simfl.live.connected_server import ConnectedServer

HELLO_S = 5.0
"""Until when whoever connects must have said who it is."""
STALL_S = 30.0
"""Seconds after which half a frame ends its connection."""
HALF, UNREAD = "half a frame, and no more of it", "it does not read what it is sent"


class Peer(Connection):
    """The server's end of a connection, which is closed unless a hello arrives soon.

    Attributes:
        owner: The server.
        nonce: Nonce of the challenge.
        looks: The user only observes.
        answered: Pings answered.
        known: Set once its user is known, and at its end.
    """

    owner: ConnectedServer
    looks = False
    answered = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.owner.connections.add(self)
        self.nonce = secrets.token_hex(16)
        self.send_control(Challenge(self.nonce))
        self.known = asyncio.Event()
        self.owner.unauthenticated.add(self)
        asyncio.get_running_loop().call_later(HELLO_S, self._expect_hello)

    def flaw(self) -> str:
        """Return the reason for which it must end now, half a frame or unread bytes; empty without one."""
        waits = self.into is not None and self.into.left > 0
        if self.parser.amid and not waits and time.monotonic() - self.heard_s > STALL_S:
            return HALF
        unread = self.transport.get_write_buffer_size() > QUEUE * self.owner.wires.most_bytes
        return UNREAD if unread else ""

    def connection_lost(self, error: Exception | None) -> None:
        if self.user < 0 and not self.closing:
            self.owner.count("left without a hello: another certificate was pinned, or it was nobody's")
        self.owner.connections.discard(self)
        self.known.set()
        super().connection_lost(error)

    def _expect_hello(self) -> None:
        if self.user < 0 and not self.closing:
            self.owner.on_malformed(self, Malformed(f"no hello within {HELLO_S:g} s"))
