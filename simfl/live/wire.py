"""Messages as bytes, and back: the one module that knows the format.

A frame is its length, the length of its header, the header and the content of its handles, one after the
other. The header is a JSON array, `Header`.

Decoding is strict, as whoever is at the other end may be a stranger: kind, direction, types, sizes and ranges
are those of the dataclass, or the frame is `Malformed`. Nothing is unpickled.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from msgspec import DecodeError, Meta, Raw, Struct, json

from simfl.crypto.row_routing import LONG_BYTES
from simfl.dataplane.handles import Handle
from simfl.engine.setup import ModelDownload, Stop
from simfl.errors import cut
from simfl.live.fields import LARGEST, Shape, Signed, Whole, field_types
from simfl.protocols.machine import Params
from simfl.protocols.protocol import Protocol
from simfl.random_streams import ZeroEntropy
from simfl.world.dropout import WhenPlanned

LENGTHS = struct.Struct(">II")  # of what follows, and of the header in it
UNAUTHENTICATED_BYTES = 1024  # in a frame of somebody who has not said who it is


# --- what the driver itself says: of no protocol, not shaped, not in the trace ---------------------------
@dataclass(frozen=True, slots=True)
class Control:
    kind: ClassVar[str]


@dataclass(frozen=True, slots=True)
class Start(Control):
    """The run begins; `origin`: the machine's monotonic clock then, nanoseconds."""

    kind = ".start"
    origin: int


@dataclass(frozen=True, slots=True)
class Part(Control):
    """The user is in the round of this frame, and is to be lost as it says; `point` is empty if it is not.
    cycle: over a buffer, of its update."""

    kind = ".part"
    point: str = ""
    when: WhenPlanned | None = None
    delay_ns: int = 0
    cycle: int | None = None


@dataclass(frozen=True, slots=True)
class Over(Control):
    """The round (the cycle) of this number is over: a user whose upload is not there says `Free` once it
    works on it no more."""

    kind = ".over"


@dataclass(frozen=True, slots=True)
class Free(Control):
    kind = ".free"


@dataclass(frozen=True, slots=True)
class Taken(Control):
    """Over a buffer: the user is there, and has taken so many messages of the protocol in all."""

    kind = ".taken"
    count: int


@dataclass(frozen=True, slots=True)
class Away(Control):
    """The user is offline: over this connection it only reports, if the run ends before it is back."""

    kind = ".away"


@dataclass(frozen=True, slots=True)
class Bye(Control):
    """The run is over: the user reports and leaves."""

    kind = ".bye"


@dataclass(frozen=True, slots=True)
class Rows(Control):
    """Some lines of the user's trace."""

    kind = ".rows"
    lines: str


@dataclass(frozen=True, slots=True)
class Done(Control):
    """All rows are there. Its figures are a user's own word."""

    kind = ".done"
    steps_ns: int
    """The time of its steps."""
    late_ns: int
    """By how much they took longer than they should."""
    held_ns: int
    """The longest real work of one."""
    offset_ns: Signed = 0
    """The server's clock less the user's as the run began."""
    ahead_ns: Signed = 0
    """By how much the server's clock has gone ahead since."""
    off_ns: int = 0
    """The most by which the two before are wrong."""


UPWARD: tuple[type[Control], ...] = (Away, Free, Taken, Rows, Done)
DOWNWARD: tuple[type[Control], ...] = (Start, Part, Over, Bye)


class Header(Struct, array_like=True, forbid_unknown_fields=True):
    """The header of a frame. `step` and `at` say which step of the sender sent it and when, for the trace."""

    kind: str
    round: Whole
    step: Annotated[int, Meta(ge=-1, le=LARGEST)]
    at: Whole
    fields: Raw
    """Those of the message's dataclass, in order; of an array [rows, columns, type of elements]."""


HEADER = json.Decoder(Header)


class Malformed(Exception):
    """The bytes are no message, or not one of this sender."""


class Envelope(NamedTuple):
    """A message with the header of its frame."""

    message: Any
    round: int
    step: int
    """Step that sent it; -1 for a control message."""
    at: int
    """Time of sending on the sender's clock, in nanoseconds."""
    size: int
    """Bytes of the frame."""


def messages(kind: Protocol, params: Params) -> tuple[list[type[Any]], list[type[Any]]]:
    """Return the types of messages that users send and those that they take, from the machines' tables.

    ValueError for machines without one: their messages are not known.
    """
    client: Any = kind.client(0, params, _no_ops(), ZeroEntropy())
    server: Any = kind.server(range(params.N), params, _no_ops(), ZeroEntropy())
    table = getattr(client, "table", None)
    stages, takes = getattr(server, "stages", None), getattr(server, "table", None)
    if table is None or (stages is None and takes is None):
        raise ValueError("its machines have no table, so that its messages are not known")
    down = {message for _, message in table} | {ModelDownload, Stop}
    up = set(takes or ()) if stages is None else {stage.message for stage in stages.values()}
    for message in (*up, *down):
        field_types(message)
    return [*up, *UPWARD], [*down, *DOWNWARD]


def _no_ops() -> Any:
    return None  # machines keep it, and use it when they are called


class Codec:
    """To and from bytes for one protocol and one side; `takes` are the types that may come in."""

    def __init__(self, takes: Iterable[type[Any]], kind: Protocol, params: Params, users: int) -> None:
        self.kinds = {message.kind: message for message in takes}
        self.offline, self.q, self.users = kind.offline, params.q, users

    def encode(self, message: Any, index: int, step: int, at: int) -> bytes:
        head, body = list[Any](), list[bytes]()
        for field in fields(message):
            value = getattr(message, field.name)
            if isinstance(value, Handle):
                elements = self._type(type(message), value.dtype.itemsize)
                body.append(_bytes_of(value, elements))
                value = [value.rows, value.columns, elements]
            head.append(value)
        header = json.encode([message.kind, index, step, at, head], enc_hook=_plain)
        size = LENGTHS.size - 4 + len(header) + sum(map(len, body))
        return b"".join((LENGTHS.pack(size, len(header)), header, *body))

    @cached_property
    def _decoders(self) -> dict[str, tuple[json.Decoder[Any], list[Callable[[Any], Any]]]]:
        """By kind of message, the decoder of its fields and a conversion of each."""
        types = {kind: field_types(message, self.users) for kind, message in self.kinds.items()}
        return {
            kind: (json.Decoder(tuple[tuple(t.wire for t in own)]), [t.convert for t in own])  # type: ignore[misc]
            for kind, own in types.items()
        }

    def decode(self, frame: memoryview) -> Envelope:
        """Read a frame without its length. Malformed if it is none that may come in."""
        (length,) = struct.unpack_from(">I", frame)
        if length > len(frame) - 4:
            raise Malformed(f"a header of {length} bytes in a frame of {len(frame)}")
        try:
            header = HEADER.decode(frame[4 : 4 + length])
            if header.kind not in self.kinds:
                raise Malformed(f"no message for this side: {header.kind[:20]!r}")
            decoder, converts = self._decoders[header.kind]
            decoded = decoder.decode(header.fields)
        except (DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Malformed(f"a false header: {cut(str(error))}") from None
        message, content, at = self.kinds[header.kind], frame[4 + length :], 0
        values = [convert(value) for convert, value in zip(converts, decoded, strict=True)]
        for k, value in enumerate(values):
            if isinstance(value, Shape):
                values[k], taken = self._handle(message, value, content[at:])
                at += taken
        if at != len(content):
            raise Malformed(f"{header.kind}: {len(content) - at} bytes too many")
        return Envelope(message(*values), header.round, header.step, header.at, len(frame) + 4)

    def _handle(self, message: type[Any], shape: Shape, content: memoryview) -> tuple[Handle, int]:
        rows, columns, name = shape
        sizes = {self._type(message, itemsize): itemsize for itemsize in (4, 1)}
        if name not in sizes:
            raise Malformed(f"{message.kind}: elements of {name[:8]!r} instead of {' or '.join(sizes)}")
        taken = rows * columns * sizes[name]
        if taken > len(content):
            raise Malformed(f"{message.kind}: {len(content)} bytes for {rows} x {columns} elements of {name}")
        array: Any = np.frombuffer(bytes(content[:taken]), "<" + name).reshape(rows, columns)
        if name == "u4" and array.size and int(array.max()) >= self.q:
            raise Malformed(f"{message.kind}: an element at or above q={self.q}")
        if name == "f4" and not np.isfinite(array).all():
            raise Malformed(f"{message.kind}: an element that is not finite")
        if rows > 1 and columns * sizes[name] >= LONG_BYTES:
            array = list(array)
        return Handle(rows, columns, np.dtype(name), array), taken

    def _type(self, message: type[Any], itemsize: int) -> str:
        """Return the type of elements so wide; the sum is over the reals where there is no offline phase."""
        if itemsize == 1:
            return "u1"
        return "f4" if message is ModelDownload or not self.offline else "u4"


class Words(Codec):
    """To and from bytes for the driver's own words only, of no protocol."""

    def __init__(self, takes: Iterable[type[Control]], users: int) -> None:
        self.kinds = {message.kind: message for message in takes}
        self.offline, self.q, self.users = False, 1, users


def _plain(value: Any) -> Any:
    """Return what JSON does not have, a sequence or a number of numpy, as it has it."""
    return list(value) if isinstance(value, Sequence) else int(value)


def _bytes_of(handle: Handle, name: str) -> bytes:
    content = handle.content
    rows = [np.ascontiguousarray(row) for row in (content if isinstance(content, list) else [content])]
    wanted = np.dtype("<" + name)
    if any(row.dtype != wanted for row in rows):
        raise TypeError(f"elements of {rows[0].dtype} where the wire has {wanted}")
    return b"".join(row.tobytes() for row in rows)


class Parser:
    """Bytes in, frames out, each of at most `most` bytes."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._held = bytearray()

    @property
    def amid(self) -> bool:
        """True while a frame is there in part."""
        return bool(self._held)

    def feed(self, data: bytes | memoryview) -> Iterator[memoryview]:
        """Yield the frames that are whole now, without their lengths. Malformed for one that is too long."""
        self._held += data
        while len(self._held) >= 4:
            (size,) = struct.unpack_from(">I", self._held)
            if not LENGTHS.size <= size <= self.most:
                raise Malformed(f"a frame of {size} bytes, allowed are {self.most}")
            if len(self._held) < 4 + size:
                return
            frame = memoryview(bytes(self._held[4 : 4 + size]))
            del self._held[: 4 + size]
            yield frame
