"""The contracts of machines: their examples run, ours keep them, and a table's slip is found at its class."""

import doctest

import pytest

from simfl.errors import RunFailed
from simfl.protocols import contracts, staleness
from simfl.protocols.client import BufferedClient, Client
from simfl.protocols.contracts import BufferServer, ClientMachine, RoundServer, buffer_server, round_server
from simfl.protocols.keyed_messages import Invite
from simfl.protocols.registry import PROTOCOLS
from simfl.protocols.server import Server, Stage
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
        w = world(protocol, 4, U=3, T=1, t=3, k=3)
        assert round_server(w.server) is w.server
        assert not isinstance(w.server, BufferServer)
    assert all(isinstance(client, ClientMachine) for client in w.clients.values())


def test_an_incomplete_server_is_refused_by_what_it_lacks():
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
    with pytest.raises(TypeError, match=r"test_contracts\.py: the table of Typo names 'advertize'"):
        type("Typo", (base,), {"__module__": __name__, **law})


def test_a_table_with_a_kind_as_text_fails_at_its_class():
    law = {"table": {("ready", "invite"): ("receive", "ready")}}
    with pytest.raises(TypeError, match="the table of Old has 'invite', no type of messages"):
        type("Old", (Client,), law)
