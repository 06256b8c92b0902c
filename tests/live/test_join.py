"""Users who join over TLS: exact sums, and one message at both ends where they do not fit together."""

from __future__ import annotations

import asyncio
import os
import ssl
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from simfl.errors import BadInput, RunFailed, ScenarioError
from simfl.live import tls
from simfl.live.connected_server import ConnectedServer
from simfl.live.connection import Sockets
from simfl.live.entrance import Entrance
from simfl.live.hello import Admission, proof
from simfl.live.join import join, received
from simfl.live.live_protocol import LiveProtocol, prepared
from simfl.live.observer import Observer
from simfl.live.serve import OWN, Listening, digest, listening, serve
from simfl.runs.build import Experiment
from simfl.scenario.load import load, resolved_yaml
from tests.live.test_run_live import SMALL

NAME = "secagg"
SCENARIO = load(SMALL | {"protocols": [NAME]}, OWN)


@dataclass(frozen=True)
class Place:
    """A server's files, its end of the wire, and what a good user has."""

    folder: Path
    own: Listening
    good: Admission

    @property
    def address(self) -> tls.Address:
        return self.own.address


@pytest.fixture(scope="module")
def study() -> Experiment:
    return prepared(SCENARIO)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = tls.make(tmp_path / "files", 4)
    tokens = tls.tokens(made.tokens, range(4))
    own = listening(("127.0.0.1", 0), tls.server_context(made.certificate, made.key), made.pin, tokens)
    yield Place(
        tmp_path, own, Admission(tokens, made.pin, tls.client_context(), code="simfl 1", scenario="a")
    )
    own.socket.close()


@contextmanager
def elsewhere(does: Callable[[], object]) -> Iterator[int]:
    """A process that does something; it is over when this is."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            does()
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    yield pid
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


codes = list[int]()


@pytest.mark.ci
@pytest.mark.parametrize("reveals", [True, False])
def test_a_round_of_joining_users(reveals: bool, place: Place, study: Experiment) -> None:
    """Exact where users tell how they rounded; else nobody knows, and the run says so."""
    good = replace(place.good, reveals=reveals)
    scenario = None if reveals else SCENARIO
    with elsewhere(lambda: join(place.address, good, range(4), scenario, processes=2)):
        result, stats = serve(study, place.own, place.folder / "run", join_s=60)
    assert codes.pop() == 0
    (measured,) = result.measured[NAME]
    assert measured.aggregate_exact is (True if reveals else None)
    assert measured.accuracy is not None
    assert stats[NAME].unchecked == (not reveals)
    (r,) = result.rounds[NAME]
    assert len(r.members) == 4
    assert sum(r.critical.values()) == r.end - r.start
    assert (stats[NAME].refused, stats[NAME].silent) == ({}, ())
    for offset_s, ahead_s, within_s in stats[NAME].clocks.values():  # it is one clock here
        assert 0 < within_s < 1
        assert abs(offset_s) <= within_s
        assert abs(ahead_s) <= within_s
    assert len(stats[NAME].clocks) == 4


@pytest.mark.ci
def test_users_leave_when_the_server_is_gone(place: Place, study: Experiment) -> None:
    def dies(*_: Any) -> None:
        os._exit(9)

    def served() -> None:
        two = prepared(load(SMALL | {"protocols": [NAME, "fedavg"]}, OWN))
        serve(two, place.own, join_s=60, on_protocol=dies)

    address = place.address
    with elsewhere(served):
        place.own.socket.close()
        with pytest.raises(RunFailed, match="the server has ended"):
            join(address, place.good, range(4), processes=1)
    assert codes.pop() == 9


def at_once(place: Place, study: Experiment, wrong: Admission, user: int, looks: bool) -> tuple[str, Any]:
    """The message at a user's end, and those at the server's."""

    async def both() -> tuple[str, Any]:
        here = Sockets(has_links=False)
        theirs = replace(place.good, protocol=NAME, own_entropy=True)
        session: ConnectedServer = LiveProtocol(study, NAME, here, theirs).server().session
        accepting = asyncio.get_running_loop().create_task(
            Entrance(session, place.own.socket, place.own.context).accept()
        )
        protocol = LiveProtocol(study, NAME, here, wrong)
        own = protocol.user(user, place.address, await protocol.worker([user]))
        with pytest.raises(BadInput) as told:
            await (Observer.connect(place.address, wrong, user) if looks else own.run())
        while (
            session.peers or session.unauthenticated or not session.refused
        ):  # its end of the connection may come later
            await asyncio.sleep(0.01)
        accepting.cancel()
        return str(told.value), session.refused

    return asyncio.run(asyncio.wait_for(both(), 20))


WRONG: dict[str, dict[str, Any]] = {
    "token": {"tokens": {3: "0" * 64}},
    "version": {"code": "simfl 2"},
    "scenario": {"scenario": "b"},
    "protocol": {"protocol": "fedavg"},
}
SAID = {
    "token": "user 3 does not have its token",
    "version": "user 3 has simfl simfl 2, and the server simfl 1",
    "scenario": "user 3 has scenario b, and the server a",
    "protocol": "user 3 has protocol fedavg, and the server secagg",
}


@pytest.mark.ci(but=["token"])
@pytest.mark.parametrize("looks", [True, False])
@pytest.mark.parametrize("what", WRONG)
def test_mismatches_are_reported_at_both_ends(
    what: str, looks: bool, place: Place, study: Experiment
) -> None:
    if what == "protocol" and looks:
        pytest.skip("who looks has none yet")
    wrong = replace(replace(place.good, protocol=NAME), **WRONG[what])
    told, counted = at_once(place, study, wrong, 3, looks)
    assert told.removeprefix(f"127.0.0.1:{place.address[1]}: ") == SAID[what]
    assert counted == {SAID[what]: 1}


@pytest.mark.parametrize("looks", [True, False])
def test_another_certificate_than_the_pinned_one(looks: bool, place: Place, study: Experiment) -> None:
    wrong = replace(place.good, certificate="0" * 64)
    told, counted = at_once(place, study, wrong, 3, looks)
    assert f"has the fingerprint {place.own.certificate}, and the pin is {'0' * 64}" in told
    assert [why.split(":")[0] for why in counted] == ["left without a hello"]


def test_a_proof_is_of_one_connection_and_user() -> None:
    good = proof("t", "c", "n", 1)
    assert good == proof("t", "c", "n", 1)
    others = [
        proof("T", "c", "n", 1),
        proof("t", "C", "n", 1),
        proof("t", "c", "N", 1),
        proof("t", "c", "n", 2),
    ]
    assert len({good, *others}) == 5


def test_no_older_tls_is_spoken(place: Place, study: Experiment) -> None:
    old = tls.client_context()
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
    told, counted = at_once(place, study, replace(place.good, context=old), 3, looks=True)
    assert "no connection" in told
    assert list(counted) == ["no TLS 1.3 within a few seconds"]


def test_a_scenario_of_the_server_is_only_read() -> None:
    assert digest(received(resolved_yaml(SCENARIO))) == digest(SCENARIO)
    code = resolved_yaml(SCENARIO).replace("model:\n    kind: logistic", "model:\n    module: a.py:B")
    assert "a.py" in code
    with pytest.raises(BadInput, match=r"learning.model: executes a Python file, .*a\.py:B"):
        received(code)
    for bad in ("- 1", "", "name: [", "!!python/object/apply:os.system [id]"):
        with pytest.raises((BadInput, ScenarioError)):
            received(bad)
    assert digest(load(SMALL, {"seed": 8})) != digest(load(SMALL))
    assert digest(load(SMALL, {"learning.data.root": "/a"})) == digest(load(SMALL))
