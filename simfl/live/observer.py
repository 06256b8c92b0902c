"""A user that observes a live run without taking part: its scenario, and the link to its server."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from simfl.errors import BadInput, cut, reason
from simfl.live.control import DOWN, Challenge, Rejected, Welcome
from simfl.live.hello import LOOK, Admission
from simfl.live.tls import Address, refuse_open
from simfl.live.wire import Codec, Envelope, Malformed, Parser

ANSWER_S = 30.0
"""Seconds within which the server must answer."""
MAX_BYTES = 2**24
"""Maximum size of a frame, which may hold a scenario."""
AGAIN_S, SELDOM_S = 0.2, 2.0
"""Seconds from one try to the next: at first, and at most."""
PASSING = (ConnectionError, TimeoutError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""Errors of a connection that may succeed when it is tried again."""
MAX_REASON = 500
"""Maximum characters of the server's reason."""


class Unreached(BadInput):
    """No server answered, or it closed the connection without a reason."""


@contextmanager
def _located(problem: str) -> Iterator[None]:
    """Raise errors of a connection as BadInput, and as Unreached if it may succeed later."""
    try:
        yield
    except PASSING as error:
        raise Unreached(f"{problem} ({reason(error) or 'it takes too long'})") from None
    # Errors of TLS are OSErrors, too. These do not pass by themselves.
    except (OSError, Malformed) as error:
        raise BadInput(f"{problem} ({reason(error)})") from None


class Observer:
    """A connection of one user, which the server has accepted."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.parser, self.codec = Parser(MAX_BYTES), Codec(DOWN, users=1)
        self.frames: deque[memoryview] = deque()
        self.welcome = Welcome()

    @classmethod
    async def connect(cls, address: Address, admission: Admission, user: int, wait_s: float = 0) -> Observer:
        """Connect, and wait for the server's welcome.

        A connection that is refused, reset or closed before the welcome is tried again: the server may not
        have started yet, or may have no place.

        Args:
            address: The server's.
            admission: The user's credentials.
            user: Its number.
            wait_s: Seconds for which it tries again.

        Raises:
            BadInput: The server refuses the user, or the last try failed.
        """
        # This comes before anything is sent beyond this machine.
        refuse_open(address[0], admission.context is not None)
        server, end_s, pause_s = f"{address[0]}:{address[1]}", time.monotonic() + wait_s, AGAIN_S
        while True:
            try:
                # A server that still runs another protocol answers later, so one try may take all of the
                # wait.
                return await cls._welcomed(address, admission, user, max(ANSWER_S, end_s - time.monotonic()))
            except BadInput as error:
                if not isinstance(error, Unreached) or time.monotonic() + pause_s > end_s:
                    raise BadInput(f"{server}: {error}") from None
            await asyncio.sleep(pause_s)
            # Less and less often: many users may wait for one server.
            pause_s = min(SELDOM_S, 1.5 * pause_s)

    @classmethod
    async def _welcomed(cls, address: Address, admission: Admission, user: int, within_s: float) -> Observer:
        with _located("no connection"):
            async with asyncio.timeout(within_s):
                observer = cls(*await asyncio.open_connection(*address, ssl=admission.context))
        try:
            # Before the hello: a man in the middle, who has another certificate, gets no proof.
            if mismatch := admission.pin_mismatch(observer.writer.transport):
                raise BadInput(mismatch)
            challenge = await observer.expect(Challenge, within_s)
            observer.send_control(admission.hello(user, challenge.nonce, LOOK))
            observer.welcome = await observer.expect(Welcome)
        except BadInput:
            observer.close()
            raise
        return observer

    def send_control(self, message: Any) -> None:
        """Send a control message."""
        self.writer.write(self.codec.encode(message, 0, -1, 0))

    async def expect(self, kind: type[Any], within_s: float = ANSWER_S) -> Any:
        """Return the server's next message, which must be of a kind.

        Raises:
            Unreached: The connection ended, or no answer arrived in time.
            BadInput: The server refuses the user, or sent another message.
        """
        with _located("the server does not answer"):
            async with asyncio.timeout(within_s):
                while not self.frames:
                    data = await self.reader.read(2**18)
                    if not data:
                        raise Unreached("the server closed the connection")
                    self.frames.extend(self.parser.feed(data))
            envelope: Envelope = self.codec.decode(self.frames.popleft())
        if isinstance(envelope.message, Rejected):
            # The text is the server's, so its length is bounded here.
            raise BadInput(cut(envelope.message.why, MAX_REASON))
        if not isinstance(envelope.message, kind):
            raise BadInput(f"the server sent {envelope.message.kind}, not {kind.kind}")
        return envelope.message

    def close(self) -> None:
        """Close the connection."""
        self.writer.close()
