"""A relay between a user and the server of a live run, which does one bad thing to one kind of frame.

What goes up is then a hostile user's, what goes down a hostile server's: neither needs a token. There is no
TLS, so that the relay can read frames.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from tests.fuzz.lines import mutate
from tests.fuzz.values import TEXTS, WHOLE

FLOOD_BYTES = {True: 2**20, False: 2**15}
"""To the server, and to a user: in a conversation all users share a process."""
LENGTHS = struct.Struct(">II")
ODD = (None, True, 1.5, "x", [], [[]], {}, [1, 2, "u4"], [2**40, 2**40, "u1"], "u4", *WHOLE, *TEXTS)
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: the connection ends with a reset


class Bad(NamedTuple):
    """Bytes in a frame's place, and what follows: the frames as they come, or the way the connection ends."""

    data: bytes
    after: str = "frames"


@dataclass
class Seen:
    """The frames that passed a relay in the direction of the bad thing, and whether that is up."""

    up: bool
    frames: list[bytes] = field(default_factory=list)


Thing = Callable[[bytes, Random, Seen], Bad]
"""Takes the frame, a source of draws, and the frames before it."""


def parsed(frame: bytes) -> tuple[list[Any], bytes]:
    """Return a frame's header, [kind, round, step, at, fields], and its content."""
    _, length = LENGTHS.unpack_from(frame)
    return json.loads(frame[8 : 8 + length]), frame[8 + length :]


def composed(header: list[Any], content: bytes) -> bytes:
    """Return a frame whose lengths are right, whatever it says."""
    text = json.dumps(header).encode()
    return LENGTHS.pack(4 + len(text) + len(content), len(text)) + text + content


# --- bad things -----------------------------------------------------------------------------------
def silence(frame: bytes, rng: Random, seen: Seen) -> Bad:
    return Bad(b"", "silence")


def close(frame: bytes, rng: Random, seen: Seen) -> Bad:
    return Bad(b"", "close")


def reset(frame: bytes, rng: Random, seen: Seen) -> Bad:
    return Bad(frame[: rng.randrange(len(frame))], "reset")


def half(frame: bytes, rng: Random, seen: Seen) -> Bad:
    return Bad(frame[: rng.randrange(1, len(frame))], rng.choice(("silence", "close")))


def drop(frame: bytes, rng: Random, seen: Seen) -> Bad:
    return Bad(b"")


def replay(frame: bytes, rng: Random, seen: Seen) -> Bad:
    """A frame of before, ahead of this one or in its place."""
    return Bad(rng.choice(seen.frames) + rng.choice((frame, b"")))


def double(frame: bytes, rng: Random, seen: Seen) -> Bad:
    return Bad(frame * rng.choice((2, 3, 50)))


def flood(frame: bytes, rng: Random, seen: Seen) -> Bad:
    return Bad(frame * (FLOOD_BYTES[seen.up] // len(frame) + 1))


def empty_flood(frame: bytes, rng: Random, seen: Seen) -> Bad:
    """Frames of the same kind with empty texts: the most of them in as many bytes."""
    header, content = parsed(frame)
    header[4] = ["" if isinstance(value, str) else value for value in header[4]]
    return flood(composed(header, content), rng, seen)


def garbage(frame: bytes, rng: Random, seen: Seen) -> Bad:
    return Bad(rng.randbytes(rng.choice((1, 7, 100, 5000))) + rng.choice((frame, b"")))


def size(frame: bytes, rng: Random, seen: Seen) -> Bad:
    """Another length of the frame, or of its header."""
    lengths = list(LENGTHS.unpack_from(frame))
    which = rng.randrange(2)
    lengths[which] = rng.choice((0, 1, lengths[which] - 1, lengths[which] + 1, 2**20, 2**31, 2**32 - 1))
    return Bad(LENGTHS.pack(*lengths) + frame[8:])


def shape(frame: bytes, rng: Random, seen: Seen) -> Bad:
    """Content that is longer or shorter, or rows and columns that are others."""
    header, content = parsed(frame)
    for handle in header[4]:
        if isinstance(handle, list) and len(handle) == 3 and rng.random() < 0.7:
            handle[rng.randrange(2)] = rng.choice((0, 1, 2, handle[0] + 1, 2**31))
    more = rng.choice((content, b"", content[:-4], content + bytes(4), content * 2))
    return Bad(composed(header, more))


def number(frame: bytes, rng: Random, seen: Seen) -> Bad:
    """A number in the header, or a field, that is another one or of another type."""
    header, content = parsed(frame)
    fields = header[4]
    if fields and rng.random() < 0.7:
        at = rng.randrange(len(fields))
        if isinstance(fields[at], str) and len(fields[at]) > 100:
            fields[at] = mutate(fields[at].encode(), rng)[0].decode("utf-8", "replace")
        else:
            fields[at] = rng.choice(ODD)
    else:
        at = rng.randrange(1, 4)
        header[at] = rng.choice((*ODD, header[at] + 1, header[at] - 1))
    return Bad(composed(header, content))


def content(frame: bytes, rng: Random, seen: Seen) -> Bad:
    """Zeros, other bytes, or one other bit where a frame has content; another digit or letter where not."""
    header, data = parsed(frame)
    if not data:
        at = rng.randrange(8, len(frame))
        return Bad(frame[:at] + rng.choice(b"0123456789abcdef").to_bytes() + frame[at + 1 :])
    at = rng.randrange(len(data))
    flipped = data[:at] + (data[at] ^ 1 << rng.randrange(8)).to_bytes() + data[at + 1 :]
    return Bad(composed(header, rng.choice((bytes(len(data)), rng.randbytes(len(data)), flipped))))


THINGS: tuple[Thing, ...] = (
    silence, close, reset, half, drop, replay, double, flood, empty_flood, garbage, size, shape, number,
    content,
)  # fmt: skip
FALSE: tuple[Thing, ...] = (replay, garbage, size, shape, number, content)
"""After these a user's update may be another one than it trained: a sum that has it is not exact."""


# --- the relay ------------------------------------------------------------------------------------
@dataclass
class Middle:
    """A relay before a server: frames of a kind, up or down, meet a bad thing, once or each time.

    Attributes:
        server: the server's address.
        kind: of the frames.
        up: they go to the server.
        thing: what happens to them.
        once: only to the first of them.
        rng: a source of draws.
        hits: how often it has happened.
    """

    server: tuple[str, int]
    kind: str
    up: bool
    thing: Thing
    once: bool
    rng: Random
    hits: int = 0

    def __post_init__(self) -> None:
        self.seen = Seen(self.up)

    async def listen(self) -> asyncio.Server:
        """Accept connections on the loopback interface."""
        return await asyncio.start_server(self._accepted, "127.0.0.1", 0)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self.server)
        except OSError:
            writer.close()
            return
        ways = self._pump(reader, far_writer, True), self._pump(far_reader, writer, False)
        try:
            with suppress(asyncio.CancelledError):  # as the loop ends
                await asyncio.gather(*ways)
        finally:
            for end in (writer, far_writer):
                end.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, up: bool) -> None:
        """Pass one direction on, until its sender ends it; the other end is closed then."""
        silent = False
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readexactly(4)
                frame = head + await reader.readexactly(struct.unpack(">I", head)[0])
                data, after = self._met(frame) if up == self.up else Bad(frame)
                if after == "reset":
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                if not silent:
                    writer.write(data)
                    await writer.drain()
                silent = silent or after == "silence"
                if after in ("reset", "close"):
                    break
        writer.close()

    def _met(self, frame: bytes) -> Bad:
        self.seen.frames.append(frame)
        if parsed(frame)[0][0] != self.kind or (self.once and self.hits):
            return Bad(frame)
        self.hits += 1
        return self.thing(frame, self.rng, self.seen)
