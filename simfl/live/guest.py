"""A user who looks at a live run: at its scenario, and at the link to its server."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

from simfl.errors import BadInput, cut, reason
from simfl.live.hello import DOWN, LOOK, Admission, Challenge, Turned, Welcome
from simfl.live.tls import Address, refuse_open
from simfl.live.wire import Envelope, Malformed, Parser, Words

HEAR_S = 30.0
MOST_BYTES = 2**24  # of a frame, which may hold a scenario
AGAIN_S = 0.2
MOST_SAID = 500  # characters of a reason


class Guest:
    """A connection of one user, which has been welcomed. taken_s: CPU time of reading and writing so far."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.parser, self.codec = Parser(MOST_BYTES), Words(DOWN, 1)
        self.frames: deque[memoryview] = deque()
        self.welcome = Welcome()

    @classmethod
    async def at(cls, address: Address, admission: Admission, user: int, wait_s: float = 0) -> Guest:
        """Connect, as soon as there is a server, and be welcomed; BadInput with the reason if not."""
        refuse_open(address[0], admission.context is not None)
        where, ends = f"{address[0]}:{address[1]}", time.monotonic() + wait_s
        while True:
            try:
                made = await asyncio.wait_for(
                    asyncio.open_connection(*address, ssl=admission.context), max(HEAR_S, wait_s)
                )
                break
            except ConnectionRefusedError as error:
                if time.monotonic() > ends:
                    raise BadInput(f"{where}: no server is there ({reason(error)})") from None
                await asyncio.sleep(AGAIN_S)
            except OSError as error:  # of TLS too, and of time
                raise BadInput(f"{where}: no connection ({reason(error) or 'it takes too long'})") from None
        guest = cls(*made)
        if why := admission.pinned(guest.writer.transport):
            guest.close()
            raise BadInput(f"{where}: {why}")
        try:
            challenge = await guest.expect(Challenge, max(HEAR_S, wait_s))
            guest.say(admission.hello(user, challenge.nonce, LOOK))
            guest.welcome = await guest.expect(Welcome)
        except BadInput as why_not:
            guest.close()
            raise BadInput(f"{where}: {why_not}") from None
        return guest

    def say(self, message: Any) -> None:
        self.writer.write(self.codec.encode(message, 0, -1, 0))

    async def expect(self, kind: type[Any], within_s: float = HEAR_S) -> Any:
        """Return the next word of the server, which must be of a kind."""
        try:
            async with asyncio.timeout(within_s):
                while not self.frames:
                    data = await self.reader.read(2**18)
                    if not data:
                        raise BadInput("the server closed the connection")
                    self.frames.extend(self.parser.feed(data))
            envelope: Envelope = self.codec.decode(self.frames.popleft())
        except (OSError, Malformed) as error:
            raise BadInput(f"the server does not answer ({reason(error) or 'it takes too long'})") from None
        if isinstance(envelope.message, Turned):
            raise BadInput(cut(envelope.message.why, MOST_SAID))
        if not isinstance(envelope.message, kind):
            raise BadInput(f"{envelope.message.kind} in place of {kind.kind}")
        return envelope.message

    def close(self) -> None:
        self.writer.close()
