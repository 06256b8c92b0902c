"""Served runs with one hostile user, over real sockets: it loses its own part, and the run nothing."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simfl.dataplane.handles import Handle
from simfl.live import connected_server
from simfl.live.connection import Connection
from simfl.live.control import Done, Rows
from simfl.live.hello import Admission
from simfl.live.join import join
from simfl.live.live_protocol import LiveStats, prepared
from simfl.live.live_run import RoundSaver
from simfl.live.run_live import run_live
from simfl.live.serve import OWN, Listening, listening, serve
from simfl.live.server import LiveServer
from simfl.live.user import LiveUser
from simfl.live.wire import Codec
from simfl.protocols.keyed_messages import Advertise
from simfl.runs.folder.unfinished import recover
from simfl.runs.results.summary import read
from simfl.scenario.load import load
from simfl.trace import rows
from tests.live.test_join import codes, elsewhere
from tests.live.test_run_live import SMALL

HOSTILE = 1
USERS = range(4)
TOKENS = {user: f"{user:032}" for user in USERS}
SHORT = {"deadlines": {"advertise": 3, "shares": 3, "upload": 3, "recovery": 3}}
REPORT_S = 5.0


@pytest.fixture
def own() -> Iterator[Listening]:
    made = listening(("127.0.0.1", 0), None, "", TOKENS)
    yield made
    made.socket.close()


def served(own: Listening, folder: Path | None, hostile: Callable[[], None], **more: Any) -> Any:
    """Serve a run whose users are in another process, one of which is hostile there."""
    address, scenario = own.address, load(SMALL | SHORT | {"protocols": ["secagg"], "rounds": 2} | more, OWN)

    def users() -> None:
        own.socket.close()
        hostile()
        join(address, Admission(TOKENS, reveals=True), USERS, scenario, processes=1, wait_s=60)

    with elsewhere(users):
        try:
            served_run = serve(prepared(scenario), own, folder, join_s=60)
        finally:
            own.socket.close()  # or who was cut off would wait for the server
    codes.pop()
    return served_run


def of_one(name: str, does: Callable[..., None]) -> Callable[[], None]:
    """Replace a method of the hostile user."""

    def patch() -> None:
        usual = getattr(LiveUser, name)

        def method(self: LiveUser, *arguments: Any) -> None:
            (does if self.user == HOSTILE else usual)(self, *arguments)

        setattr(LiveUser, name, method)

    return patch


def is_silent(user: LiveUser, connection: Connection) -> None:
    """Keep the connection, and never report."""


def stalls(user: LiveUser, connection: Connection) -> None:
    connection.unshape()
    connection.put(connection.owner.wires.up.encode(Rows("x" * 100), 0, -1, 0)[:50])


def floods(user: LiveUser, connection: Connection) -> None:
    connection.unshape()
    connection.put(400_000 * connection.owner.wires.up.encode(Rows(""), 0, -1, 0))


def chatters(user: LiveUser, connection: Connection) -> None:
    """Report 400,000 times one character."""
    connection.unshape()
    connection.put(400_000 * connection.owner.wires.up.encode(Rows("x"), 0, -1, 0))


def boasts(user: LiveUser, connection: Connection) -> None:
    connection.unshape()
    connection.send_control(Done(2**63 - 1, 2**63 - 1, 2**63 - 1, 1 - 2**63, 2**63 - 1, 2**63 - 1))


REPORTS = {
    is_silent: "no report within 5 s",
    stalls: "no report within 5 s",
    floods: "a report of no rows",
    chatters: "bytes of a user",
    boasts: "9.22e+09 s of step time",
}


@pytest.mark.ci
@pytest.mark.parametrize("does", REPORTS, ids=lambda does: does.__name__)
def test_bad_reports_are_their_users_loss(
    does: Any, own: Listening, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connected_server, "REPORT_S", REPORT_S)
    monkeypatch.setattr(connected_server, "REPORT_BYTES", 2**24)
    began = time.monotonic()
    result, stats = served(own, tmp_path / "run", of_one("_leave", does))
    found: LiveStats = stats["secagg"]
    assert time.monotonic() - began < 60
    assert [len(r.members) for r in result.rounds["secagg"]] == [4, 4]
    assert found.silent == (HOSTILE,)
    assert any(REPORTS[does] in why for why in found.refused), found.refused
    assert sorted(found.user_claims) == sorted(found.clocks) == [0, 2, 3]
    assert found.overrun < 100  # of steps of microseconds on a busy machine; a claim is 10^9 s
    assert all(abs(offset) < 1 for offset, _, _ in found.clocks.values())
    assert len(read(tmp_path / "run" / "summary.json").protocols["secagg"].rounds) == 2
    written = json.loads((tmp_path / "run" / "live.json").read_text())
    assert written["protocols"]["secagg"]["silent"] == [HOSTILE]


@pytest.mark.ci
def test_silence_in_a_round_is_that_users_loss(own: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    """It joins, keeps its connection open, and never answers. The deadlines of its phases are 3 s."""
    monkeypatch.setattr(connected_server, "REPORT_S", REPORT_S)
    result, _ = served(own, None, of_one("take", lambda *arguments: None), rounds=1)
    (r,) = result.rounds["secagg"]
    assert sorted(user for user, _, _ in r.members) == [0, 2, 3]
    assert r.missed == {(HOSTILE, "offline"): 1}


def zero_keys() -> None:
    usual = Codec.encode

    def encode(self: Codec, message: Any, *arguments: Any) -> bytes:
        if isinstance(message, Advertise) and encode.left:  # type: ignore[attr-defined]
            zeros = np.zeros_like(message.publics.content)
            message = Advertise(Handle(*zeros.shape, message.publics.dtype, zeros))
        return usual(self, message, *arguments)

    sends = LiveUser.connection_of

    def connection_of(self: LiveUser, user: int) -> Any:
        encode.left = self.user == HOSTILE  # type: ignore[attr-defined]
        return sends(self, user)

    encode.left = False  # type: ignore[attr-defined]
    Codec.encode = encode  # type: ignore[method-assign]
    LiveUser.connection_of = connection_of  # type: ignore[method-assign]


@pytest.mark.ci
def test_low_order_keys_are_refused_by_the_server(own: Listening) -> None:
    result, stats = served(own, None, zero_keys)
    why = "advertise: a low-order public key"
    for r in result.rounds["secagg"]:
        assert sorted(user for user, _, _ in r.members) == [0, 2, 3]
        assert r.refused == {f"frame: {why}": 1}
    assert stats["secagg"].refused == {why: 2}


@pytest.mark.ci
def test_rounds_after_an_abort_have_users_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the server let the keys pass, each round is aborted for its own reason, not for want of users."""
    monkeypatch.setattr("simfl.live.remote_users._check_keys", lambda message: None)
    for owner, name in ((Codec, "encode"), (LiveUser, "connection_of")):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # so that it is put back
    zero_keys()
    study = prepared(load(SMALL | SHORT | {"protocols": ["secagg"], "rounds": 2}))
    result, _ = run_live(study, links="none", processes=1)
    assert [r.reason for r in result.rounds["secagg"]] == ["shares: 1 users answered, 2 needed"] * 2


@pytest.mark.ci
@pytest.mark.parametrize("ending", ["killed", "interrupted", "failed"])
def test_finished_rounds_stay_however_the_server_ends(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the fourth round the server's process ends; three rounds are in the folder, and are resumable."""
    usual, saves, savers = LiveServer._closed, RoundSaver.add, list[RoundSaver]()

    def adds(self: RoundSaver, *arguments: Any) -> None:
        savers.append(self)
        saves(self, *arguments)

    def ends(self: Any, closed: Any) -> None:
        if closed.round == 3:
            savers[0].close()  # when three are on the disk
            if ending == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise KeyboardInterrupt if ending == "interrupted" else RuntimeError("broken")
        usual(self, closed)

    monkeypatch.setattr(RoundSaver, "add", adds)
    monkeypatch.setattr(LiveServer, "_closed", ends)
    study = prepared(load(SMALL | {"protocols": ["fedavg"], "rounds": 5}))
    with elsewhere(lambda: run_live(study, tmp_path, "none", 1)):
        pass
    assert codes.pop() == (-signal.SIGKILL if ending == "killed" else 1)
    recover(tmp_path)
    summary = read(tmp_path / "summary.json")
    assert summary.interrupted
    finished = summary.protocols["fedavg"].rounds
    assert [(r.status, r.survivors, r.aggregate_exact) for r in finished] == [("completed", 4, None)] * 3
    monkeypatch.undo()
    result, _ = run_live(study, tmp_path, "none", 1, resume=True)
    assert [m.aggregate_exact for m in result.measured["fedavg"]] == [True] * 5
    assert not (tmp_path / "unfinished").exists()
    assert not read(tmp_path / "summary.json").interrupted


def test_saved_rows_have_no_cause_of_another_trace(tmp_path: Path) -> None:
    from simfl.live.live_run import server_causes

    sent = rows.Sent(0, 1, -1, "upload", "upload", "", 8, 8, 70, 0, 9)
    assert server_causes(sent).cause == -1
    assert server_causes(sent._replace(arrived=None)).cause == 70
    gone = rows.Step(0, -1, "protocol", "gone", "", "", -3, 4, 0, 0, 1, (("upload", 1),))
    assert (server_causes(gone).cause, server_causes(gone).previous) == (-1, 4)
    assert server_causes(gone._replace(cause=2)).cause == 2
