"""Connections among users: tokens of pairs, rows that wait, and whoever else knocks."""

from __future__ import annotations

import asyncio
import json
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from simfl.dataplane.handles import U8, Handle
from simfl.live.neighbours import WORDS, Greeting, Neighbours, Row, introductions, unknown
from simfl.live.real_time import RealTime
from simfl.live.wire import REFERENCE, Codec
from simfl.protocols.keyed_messages import Inbox, Invite, Shares
from simfl.protocols.machine import Message, Params
from simfl.protocols.registry import PROTOCOLS

PARAMS = Params(d=5, q=2**32 - 5, N=4, T=1, D=1, U=3, t=2, k=2)
KIND: Any = PROTOCOLS.find("lightsecagg")
BLOCK = KIND(**KIND.small(4, 1))
CODEC = Codec(WORDS, BLOCK, PARAMS, 4)
SECRET = b"known to the server"


def inbox(*references: tuple[int, int, int], columns: int = 3) -> Inbox:
    packed = b"".join(REFERENCE.pack(*reference) for reference in references)
    content = np.frombuffer(packed, np.uint8).reshape(-1, REFERENCE.size)
    return Inbox([user for user, _, _ in references], Handle(len(references), columns, U8, content))


def row(number: int, place: int, *elements: int) -> bytes:
    content = Handle(1, len(elements), U8, np.array([elements], np.uint8))
    return CODEC.encode(Row(number, place, content), 0, -1, 0)


async def heard(said: list[bytes], awaited: Inbox, within_s: float = 20) -> tuple[list[Message], bool]:
    """Say something to user 1; return the messages that came of it, and whether it closed the connection.

    within_s: so long neither may happen.
    """
    owner: Any = SimpleNamespace(env=RealTime(), user=1, address=("127.0.0.1", 9))
    owner.wires = SimpleNamespace(most_bytes=10_000)
    one = Neighbours(owner, CODEC)
    await one.listen()
    one.introduced(introductions(SECRET, dict.fromkeys(range(4), ("127.0.0.1", 9)), 1))
    out = list[Message]()
    one.whole(0, awaited, out.append)
    reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
    writer.write(b"".join(said))
    reading, ends = asyncio.ensure_future(reader.read()), time.monotonic() + within_s
    while not (out or reading.done()) and time.monotonic() < ends:
        await asyncio.sleep(0.01)
    await asyncio.wait({reading}, timeout=0.1)
    cut = reader.at_eof() or reader.exception() is not None
    writer.close()
    one.close()
    return out, cut


def greeting(user: int, token: str | None = None) -> bytes:
    told = json.loads(introductions(SECRET, dict.fromkeys(range(4), ("127.0.0.1", 9)), user))
    known = {other: own for other, _, _, own in told}
    return CODEC.encode(Greeting(user, known[1] if token is None else token), 0, -1, 0)


def test_a_pair_has_a_token_that_nobody_else_has() -> None:
    tokens = {}
    for user in range(4):
        for other, _, _, token in json.loads(introductions(SECRET, dict.fromkeys(range(4), ("a", 1)), user)):
            assert tokens.setdefault(frozenset((user, other)), token) == token
    assert len(set(tokens.values())) == len(tokens) == 6
    assert token not in introductions(b"another run", dict.fromkeys(range(4), ("a", 1)), 3)


def test_rows_take_the_places_of_their_references() -> None:
    said = [greeting(2), row(7, 1, 4, 5, 6), row(8, 0, 1, 2, 3)]
    (whole,), cut = asyncio.run(heard(said, inbox((2, 8, 0), (2, 7, 1))))
    assert isinstance(whole, Inbox)
    assert np.array_equal(whole.sealed.content, [[1, 2, 3], [4, 5, 6]])
    assert (list(whole.senders), cut) == ([2, 2], False)


def test_a_row_of_another_length_is_zeros() -> None:
    (whole,), _ = asyncio.run(heard([greeting(2), row(7, 1, 4, 5)], inbox((2, 7, 1))))
    assert isinstance(whole, Inbox)
    assert np.array_equal(whole.sealed.content, [[0, 0, 0]])


@pytest.mark.parametrize(
    "said",
    [
        [greeting(2, "a guess"), row(7, 1, 4, 5, 6)],
        [row(7, 1, 4, 5, 6)],
        [greeting(2), greeting(2), row(7, 1, 4, 5, 6)],
        [greeting(2), b"\xff" * 100, row(7, 1, 4, 5, 6)],
    ],
    ids=["a wrong token", "no greeting", "a second one", "no frame"],
)
def test_who_is_not_expected_is_cut_off(said: list[bytes]) -> None:
    assert asyncio.run(heard(said, inbox((2, 7, 1)))) == ([], True)


def test_a_user_gives_no_rows_in_anothers_name() -> None:
    assert asyncio.run(heard([greeting(3), row(7, 1, 4, 5, 6)], inbox((2, 7, 1)), 0.3)) == ([], False)


def test_rows_whose_receivers_are_unknown_are_refused() -> None:
    """A client of another making does not say for whom each row of its shares is."""
    client = SimpleNamespace(table={("new", Invite): ("advertise", "ready")})
    server = SimpleNamespace(stages={"shares": SimpleNamespace(message=Shares)})
    strange: Any = SimpleNamespace(client=lambda *_: client, server=lambda *_: server)
    assert unknown(strange, PARAMS) == "the receivers of the rows in shares are not known"
    assert unknown(BLOCK, PARAMS) == ""
