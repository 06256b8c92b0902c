"""Direct connections between users, which bypass the server.

A user pushes each row to the user that it is for, behind what waits for its own uplink, and sends the server
references in place of the rows. The server's machine passes references on as it would rows. Their receiver
puts the rows in their places once both are there; that they have taken its downlink is the server's to wait
for, whose flow to a user is that user's downlink.

Each user listens on the address with which it reaches the server, and dials another one when it has something
for it. The dialling user first says a token that the server told to these two users only.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, get_type_hints

import numpy as np

from simfl.crypto.row_routing import LONG_BYTES
from simfl.dataplane.handles import U8, Handle
from simfl.engine.links import Transmission
from simfl.live.connection import Connection
from simfl.live.peer import HELLO_S, STRANGERS
from simfl.live.wire import REFERENCE, STRANGER_BYTES, Codec, Control, Envelope, Malformed, messages
from simfl.protocols.machine import Message, Params
from simfl.protocols.masked_round import MaskedClient
from simfl.protocols.protocol import Protocol
from simfl.random_streams import ZeroEntropy

if TYPE_CHECKING:
    from simfl.live.user import LiveUser

KEPT = 64  # rows of one user that wait for the message that refers to them

Key = tuple[int, int, int]
"""A row: whose it is, the number of its message, and its place there."""


@dataclass(frozen=True, slots=True)
class Listens(Control):
    """The port at which other users reach the user."""

    kind = ".listens"
    port: int


@dataclass(frozen=True, slots=True)
class Others(Control):
    """Addresses of other users, as `introductions` writes them."""

    kind = ".others"
    told: str


@dataclass(frozen=True, slots=True)
class Greeting(Control):
    """A user's first word to another user."""

    kind = ".greeting"
    user: int
    token: str


@dataclass(frozen=True, slots=True)
class Row(Control):
    """A row for its receiver."""

    kind = ".row"
    message: int
    place: int
    content: Handle


WORDS: tuple[type[Control], ...] = (Greeting, Row)


def unknown(kind: Protocol, params: Params) -> str:
    """Return why the rows that a protocol's users have for each other cannot go their own way; empty if they
    can."""
    up, down = messages(kind, params)
    client: Any = kind.client(0, params, None, ZeroEntropy())  # type: ignore[arg-type]
    for message in (*up, *down):
        if getattr(message, "relayed", False):
            names = [name for name, hint in get_type_hints(message).items() if hint is Handle]
            to = message not in up or "to" in get_type_hints(message) or isinstance(client, MaskedClient)
            if len(names) != 1 or not to:
                return f"the receivers of the rows in {message.kind} are not known"
    return ""


def _rows(message: Message) -> tuple[str, Handle]:
    """Return the field of a message that has its rows, and these."""
    (found,) = ((f.name, h) for f in fields(message) if isinstance(h := getattr(message, f.name), Handle))
    return found


def introductions(secret: bytes, addresses: dict[int, tuple[str, int]], user: int) -> str:
    """Return what the server tells a user: the addresses of others, with a token for each pair."""

    def token(other: int) -> str:
        pair = f"{min(user, other)} {max(user, other)}".encode()
        return hmac.new(secret, pair, "sha256").hexdigest()

    others = {other: at for other, at in addresses.items() if other != user}
    return json.dumps([[other, *at, token(other)] for other, at in others.items()])


class Neighbours:
    """One user's connections to others. rows: that have come, and wait. awaited: messages that wait."""

    def __init__(self, owner: LiveUser, codec: Codec) -> None:
        self.owner, self.codec = owner, codec
        self.env, self.wires = owner.env, owner.wires
        self.known: dict[int, tuple[str, int, str]] = {}
        self.lines: dict[int, _Line] = {}
        self.heard: set[Connection] = set()
        self.rows: dict[int, dict[Key, Any]] = {}
        self.awaited: list[tuple[int, Message, Callable[[Message], None]]] = []
        self.numbers = count()
        self.port = 0

    async def listen(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(self.owner.address)  # nothing is sent: it tells the own address on that way
            host = probe.getsockname()[0]
        self.listening = await asyncio.get_running_loop().create_server(self._connection, host, 0)
        self.port = self.listening.sockets[0].getsockname()[1]

    def introduced(self, told: str) -> None:
        self.known = {user: (host, port, token) for user, host, port, token in json.loads(told)}

    def leave(self) -> None:
        """Close all connections, as the user is lost or offline, behind what has passed its link."""
        for line in self.lines.values():
            line.leave()
        for connection in tuple(self.heard):
            connection.leave()
        self.lines.clear()
        self.heard.clear()
        self.awaited.clear()

    def close(self) -> None:
        self.leave()
        self.listening.close()

    # -- to others
    def push(self, t: Transmission, receivers: Sequence[int], connection: Connection) -> Message:
        """Let the rows of a message go to their receivers; return it with references in their place."""
        field, rows = _rows(t.message)
        number, left = next(self.numbers), t.size_bytes
        for place, to in enumerate(receivers):
            content = np.asarray(rows.content[place])[None]
            row = Row(number, place, Handle(1, rows.columns, U8, content))
            frame = self.codec.encode(row, t.round, -1, max(0, self.env.now))
            if left < rows.columns:  # it is lost amid this one
                frame = frame[: max(0, left)]
            connection.put(frame, sink=partial(self._write, to))
            left -= rows.columns
        references = [REFERENCE.pack(self.owner.user, number, place) for place in range(rows.rows)]
        array = np.frombuffer(b"".join(references), np.uint8).reshape(rows.rows, REFERENCE.size)
        return replace(t.message, **{field: Handle(rows.rows, rows.columns, U8, array)})

    def _write(self, to: int, data: memoryview) -> None:
        if to not in self.lines and to in self.known:
            host, port, token = self.known[to]
            greeting = self.codec.encode(Greeting(self.owner.user, token), 0, -1, 0)
            line = self.lines[to] = _Line(self, to, greeting)
            line.dialling = asyncio.get_running_loop().create_task(line.dial(host, port))
        if to in self.lines:
            self.lines[to].write(bytes(data))

    # -- from others
    def _connection(self) -> Connection:
        owner: Any = self  # all of a session that a connection asks for
        return _Heard(owner, self.codec, STRANGER_BYTES)

    def taken(self, connection: Connection, envelope: Envelope) -> None:
        match envelope.message:
            case Greeting(user, token) if connection.user < 0:
                known = self.known.get(user)
                if known is None or not hmac.compare_digest(known[2].encode(), token.encode()):
                    raise Malformed("not a user of this run")
                connection.user, connection.parser.most = user, self.wires.most_bytes
            case Row(number, place, content) if connection.user >= 0 and content.rows == 1:
                rows = self.rows.setdefault(connection.user, {})
                rows[connection.user, number, place] = content.content[0]
                if len(rows) > KEPT:
                    del rows[next(iter(rows))]
                self._go_on()
            case _:
                raise Malformed("no row, and no greeting")

    def malformed(self, connection: Connection, fault: Malformed) -> None:
        connection.abort()
        self.broken(connection)

    def broken(self, connection: Connection) -> None:
        self.heard.discard(connection)

    def whole(self, index: int, message: Message, then: Callable[[Message], None]) -> None:
        """Call back with a message of a round once all rows are here that it refers to."""
        self.awaited.append((index, message, then))
        self._go_on()

    def forget(self, index: int) -> int:
        """Wait for no rows of a round any more; return how many messages did."""
        left = [waiting for waiting in self.awaited if waiting[0] != index]
        forgotten, self.awaited = len(self.awaited) - len(left), left
        return forgotten

    def _go_on(self) -> None:
        waiting, self.awaited = self.awaited, []
        for index, message, then in waiting:
            whole = self._filled(message)
            if whole is None:
                self.awaited.append((index, message, then))
            else:
                then(whole)

    def _filled(self, message: Message) -> Message | None:
        """Return a message with its rows; None if one is missing. Of another length it is zeros, which no
        receiver believes."""
        field, handle = _rows(message)
        keys = [REFERENCE.unpack(bytes(reference)) for reference in handle.content]
        if any(key not in self.rows.get(key[0], ()) for key in keys):
            return None
        rows = [self.rows[key[0]].pop(key) for key in keys]
        rows = [row if len(row) == handle.columns else np.zeros(handle.columns, np.uint8) for row in rows]
        whole: Any = rows if len(rows) > 1 and handle.columns >= LONG_BYTES else np.array(rows)
        content = whole if len(rows) else np.zeros((0, handle.columns), np.uint8)
        return replace(message, **{field: Handle(handle.rows, handle.columns, U8, content)})


class _Heard(Connection):
    """A connection over which another user's rows come, once it has greeted."""

    owner: Any

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.owner.heard.add(self)
        if sum(one.user < 0 for one in self.owner.heard) > STRANGERS:
            self._expect_greeting()
        else:
            asyncio.get_running_loop().call_later(HELLO_S, self._expect_greeting)

    def _expect_greeting(self) -> None:
        if self.user < 0:
            self.abort()
            self.owner.broken(self)


class _Line(asyncio.Protocol):
    """A connection to another user, over which rows go. Data written before it is open waits."""

    transport: Any = None
    dialling: asyncio.Task[None]

    def __init__(self, neighbours: Neighbours, to: int, greeting: bytes) -> None:
        self.neighbours, self.to, self.waiting = neighbours, to, [greeting]

    async def dial(self, host: str, port: int) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self, host, port)
        except OSError:  # it is not there any more
            self.connection_lost(None)

    def write(self, data: bytes) -> None:
        if self.transport is None:
            self.waiting.append(data)
        elif not self.transport.is_closing():
            self.transport.write(data)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for data in self.waiting:
            transport.write(data)
        self.waiting.clear()

    def leave(self) -> None:
        if self.transport is None:
            self.dialling.cancel()
        else:
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if self.neighbours.lines.get(self.to) is self:
            del self.neighbours.lines[self.to]
