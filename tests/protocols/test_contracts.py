"""The contracts of machines: their examples run, ours keep them, and a table's slip is found at its class."""

import doctest
from typing import Any

import pytest

import simfl
from simfl.errors import RunFailed
from simfl.protocols import contracts, staleness
from simfl.protocols.client import BufferedClient, Client
from simfl.protocols.contracts import BufferServer, ClientMachine, RoundServer, buffer_server, round_server
from simfl.protocols.fedavg import FedAvg
from simfl.protocols.keyed_messages import Invite
from simfl.protocols.long_term_keys import Memory
from simfl.protocols.machine import Message, Params
from simfl.protocols.protocol import Protocol
from simfl.protocols.registry import PROTOCOLS
from simfl.protocols.secagg import SecAgg
from simfl.protocols.server import Server, Stage
from tests.engine.harness import ASYNC, SYNC
from tests.protocols.buffers import Buffers
from tests.protocols.harness import world


@pytest.mark.parametrize("module", [contracts, staleness])
def test_examples_run(module):
    assert doctest.testmod(module).failed == 0
    assert doctest.testmod(module).attempted


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_our_machines_keep_their_contracts(protocol):
    if PROTOCOLS[protocol]().asynchronous:
        w = Buffers(protocol, 4, K=2, U=3, T=1)
        assert buffer_server(w.server) is w.server
        assert not isinstance(w.server, RoundServer)
    else:
        w = world(protocol, 4, U=3, T=1, t=3, k=3, memory=Memory())
        assert round_server(w.server) is w.server
        assert not isinstance(w.server, BufferServer)
    assert all(isinstance(client, ClientMachine) for client in w.clients.values())


def test_incomplete_server_is_refused_with_missing_names():
    with pytest.raises(RunFailed, match="object has no awaits, expire, gone, quorum, receive, start"):
        round_server(object())
    with pytest.raises(RunFailed, match="FedAvgServer has no admits, back, begin, flights, open, version"):
        buffer_server(world("fedavg", 2).server)


SLIPS = {
    "client": (Client, {"table": {("ready", Invite): ("advertize", "ready")}}),
    "buffered client": (BufferedClient, {"table": {("idle", Invite): ("advertize", "idle")}}),
    "server": (Server, {"stages": {"advertise": Stage(Invite, "offline", "advertize")}}),
}


@pytest.mark.parametrize(("base", "law"), SLIPS.values(), ids=SLIPS)
def test_a_table_that_names_no_method_fails_at_its_class(base, law):
    with pytest.raises(TypeError, match=r"test_contracts\.py: Typo: its table names 'advertize'"):
        type("Typo", (base,), {"__module__": __name__, **law})


def test_a_table_with_a_kind_as_text_fails_at_its_class():
    law = {"table": {("ready", "invite"): ("receive", "ready")}}
    with pytest.raises(TypeError, match="Old: its table has 'invite', no type of messages"):
        type("Old", (Client,), law)


def test_a_message_without_a_phase_fails_at_its_table():
    bare = type("Bare", (Message,), {"kind": "bare"})
    with pytest.raises(TypeError, match="Old: its table has Bare, which has no phase"):
        type("Old", (Client,), {"table": {("ready", bare): ("receive", "ready")}})


MISSPELT = {
    "phase of a message": (Message, {"phase": "uplod"}, "phase 'uplod' must be one of offline, train"),
    "point of a message": (Message, {"point": "tell"}, "point 'tell' must be one of advertise, shares"),
    "stage": (Server, {"stages": {"uplod": Stage(Invite, "upload", "gone")}}, "stage 'uplod' must be one of"),
    "phase of a stage": (
        Server, {"stages": {"upload": Stage(Invite, "advertise", "gone")}},
        "phase of stage 'upload': 'advertise' must be one of offline, training, upload, recovery",
    ),
    "point": (Protocol, {"points": ("training", "uplod")}, "point 'uplod' must be one of .*; did you mean"),
    "no upload": (Protocol, {"points": ("training",)}, "its points lack upload"),
    "timer": (Protocol, {"timers": ("uplod",)}, "timer 'uplod' must be one of advertise, shares, upload"),
    "mode": (Protocol, {"mode": "round"}, "mode 'round' must be one of rounds, buffered; did you mean"),
    "model": (Protocol, {"model_with": (Invite, "pad")}, "its model_with has 'pad', no type of messages"),
}  # fmt: skip


@pytest.mark.parametrize(("base", "law", "says"), MISSPELT.values(), ids=MISSPELT)
def test_a_misspelt_word_fails_at_its_class(base, law, says):
    """The message begins with the file and the class."""
    with pytest.raises(TypeError, match=rf"test_contracts\.py: Typo: {says}"):
        type("Typo", (base,), {"__module__": __name__, **law})


@pytest.mark.parametrize("scenario", [SYNC, ASYNC], ids=["rounds", "buffer"])
def test_a_protocol_without_a_client_ends_with_its_name(scenario, monkeypatch):
    (name, *_) = scenario["protocols"]
    kind = PROTOCOLS[name]
    monkeypatch.setattr(kind, "client", lambda self, *how: None)
    scenario = {**scenario, "protocols": {name: {}}, "payload": "shadow"}
    with pytest.raises(RunFailed, match=rf"{kind.__name__}\.client returned None, which has no receive"):
        simfl.run(scenario)


def test_protocol_takes_the_old_names_of_its_methods():
    """`withstands` and `small` of before 0.2 stand for `max_colluders` and `small_settings`."""
    own = {"withstands": lambda self, p: 7, "small": classmethod(lambda cls, users, lost: {"t": users})}
    with pytest.warns(DeprecationWarning, match=r"Protocol\.(withstands|small) is now"):
        old = type("Old", (FedAvg,), {"__module__": __name__, **own})
    assert (old().max_colluders(Params(d=1, q=101)), old.small_settings(4, 1)) == (7, {"t": 4})


def test_old_methods_may_call_the_old_names_of_their_base():
    """By `super()`, and through a class between that has the new name."""

    class New(SecAgg):
        def max_colluders(self, p: Params) -> int | None:
            return (super().max_colluders(p) or 0) + 100

    def withstands(self: Any, p: Params) -> int:
        return int(super(old, self).withstands(p)) + 1000

    def small(kind: Any, users: int, lost: int) -> dict[str, Any]:
        return {**super(old, kind).small(users, lost), "x": lost}

    own = {"withstands": withstands, "small": classmethod(small), "__module__": __name__}
    with pytest.warns(DeprecationWarning, match=r"Protocol\.(withstands|small) is now"):
        old = type("Old", (New,), own)
    p = Params(d=1, q=101, N=4, T=2, D=1, t=3)
    assert old().max_colluders(p) == old().withstands(p) == 1000 + 100 + (SecAgg().max_colluders(p) or 0)
    assert old.small_settings(4, 1) == {**SecAgg.small_settings(4, 1), "x": 1}
