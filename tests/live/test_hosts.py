"""A live run is made of the engine's own sides: what a round is made of is written once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from simfl.engine.buffered import Buffer
from simfl.engine.rounds import Rounds
from simfl.engine.user_side import UserSide
from simfl.live.connection import Sockets
from simfl.live.live_protocol import LiveProtocol, prepared
from simfl.scenario.load import load
from tests.live.test_buffers import BUFFER
from tests.live.test_run_live import SMALL


@pytest.mark.parametrize(
    ("given", "protocol", "side"),
    [({}, "fedavg", Rounds), (BUFFER, "fedbuff", Buffer)],
    ids=["rounds", "buffer"],
)
def test_live_parties_are_sides_of_the_engine(given: Any, protocol: str, side: type) -> None:
    """Server and user of a run hold the sides that a simulation joins, and neither is a class of its own."""
    protocol = LiveProtocol(
        prepared(load(SMALL, {**given, "protocols": [protocol]})), protocol, Sockets(has_links=False)
    )

    async def parties() -> tuple[Any, Any]:
        return protocol.server(), protocol.user(0, ("127.0.0.1", 1))

    server, user = asyncio.run(parties())
    assert type(server.side) is side
    assert server.side.users is server.users
    assert type(user.users) is UserSide
    assert user.users.server is user
