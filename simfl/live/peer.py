"""The server's end of a connection, which is unauthenticated until its hello."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Any

from simfl.live.connection import QUEUE, Connection
from simfl.live.control import Challenge
from simfl.live.wire import Malformed

if TYPE_CHECKING:
    from simfl.live.connected_server import ConnectedServer

HELLO_S = 5.0
"""Seconds within which a new connection must have sent its hello."""
STALL_S = 30.0
"""Seconds without bytes after which half a frame ends its connection."""
HALF, UNREAD = "half a frame, and not the rest of it", "it does not read its messages"


class Peer(Connection):
    """The server's end of a connection, which is closed unless a hello arrives soon.

    Attributes:
        nonce: Nonce of the challenge.
        has_hello: Set once its hello is accepted, and at its end.
    """

    owner: ConnectedServer
    is_observer = False
    """The user does not take part."""
    answered = 0
    """Pings that were answered."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.owner.connections.add(self)
        # 128 bits, fresh for each connection: a proof that was seen on one is of no use on another.
        self.nonce = secrets.token_hex(16)
        self.send_control(Challenge(self.nonce))
        self.has_hello = asyncio.Event()
        self.owner.unauthenticated.add(self)
        # Not withdrawn by a hello: `_expect_hello` looks whether one has arrived.
        asyncio.get_running_loop().call_later(HELLO_S, self._expect_hello)

    def flaw(self) -> str:
        """Return the reason for which it must end now, half a frame or unread bytes; empty without one."""
        # While received bytes wait for the server's link, their frame is incomplete through no fault.
        waits = self.inflow is not None and self.inflow.left > 0
        if self.parser.has_part and not waits and time.monotonic() - self.received_s > STALL_S:
            return HALF
        # This process holds the bytes that a peer does not read.
        unread = self.transport.get_write_buffer_size() > QUEUE * self.owner.wires.max_frame_bytes
        return UNREAD if unread else ""

    def connection_lost(self, error: Exception | None) -> None:
        # The connection ended by itself. An end by this side has been counted with its reason.
        if self.user < 0 and not self.is_closing:
            self.owner.count("left without a hello: another certificate was pinned, or no user connected")
        self.owner.connections.discard(self)
        # The entrance's task waits for this event, and then gives up the place.
        self.has_hello.set()
        super().connection_lost(error)

    def _expect_hello(self) -> None:
        if self.user < 0 and not self.is_closing:
            self.owner.on_malformed(self, Malformed(f"no hello within {HELLO_S:g} s"))
