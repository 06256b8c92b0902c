"""The live driver drives the engine's own hosts: what a round is made of is written once."""

from simfl.engine.rounds import RoundSession
from simfl.engine.session import Session
from simfl.live.server import LiveServer
from simfl.live.user import LiveUser

OF_USERS = ("follow", "lose", "release", "noise", "client_of", "close")
OF_ROUNDS = ("main", "_select", "members", "at_server", "machine_of", "abort_round", "lose")


def test_engine_and_live_drive_the_same_hosts() -> None:
    """Users train and are lost by the session's code; rounds begin and end by `RoundSession`'s."""
    assert [name for name in OF_USERS if getattr(LiveUser, name) is not getattr(Session, name)] == []
    assert [name for name in OF_ROUNDS if getattr(LiveServer, name) is not getattr(RoundSession, name)] == []
