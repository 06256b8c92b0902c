"""The live driver drives the engine's own hosts: what a round is made of is written once."""

from simfl.engine.buffered import BufferedSession
from simfl.engine.rounds import RoundSession
from simfl.engine.session import Session
from simfl.live.buffer_server import LiveBufferServer
from simfl.live.buffer_user import LiveBufferUser
from simfl.live.server import LiveServer
from simfl.live.user import LiveUser

OF_USERS = ("follow", "lose", "release", "noise", "client_of", "close")
OF_ROUNDS = ("main", "_select", "members", "at_server", "machine_of", "abort_round", "lose")
OF_BUFFERS = ("_pick", "_rest", "drop", "on_processed", "came_online", "went_offline", "members", "lose")


def test_engine_and_live_drive_the_same_hosts() -> None:
    """Users train and are lost by the session's code; rounds and aggregations begin and end by its own."""
    assert [name for name in OF_USERS if getattr(LiveUser, name) is not getattr(Session, name)] == []
    assert [name for name in OF_ROUNDS if getattr(LiveServer, name) is not getattr(RoundSession, name)] == []
    users = (name for name in OF_USERS if name != "client_of")  # which is one for all cycles
    assert [name for name in users if getattr(LiveBufferUser, name) is not getattr(Session, name)] == []
    server = LiveBufferServer
    assert [name for name in OF_BUFFERS if getattr(server, name) is not getattr(BufferedSession, name)] == []
