"""The state diagrams of docs/states.md, drawn from the tables of the machines.

python -m docs.tools.states     writes the page's blocks; a test compares them with the tables
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest

from docs.tools import ROOT
from simfl.dataplane.shadow import ShadowOps
from simfl.protocols.buffered_server import BufferedServer
from simfl.protocols.client import BufferedClient, Client
from simfl.protocols.consistency import Consistent
from simfl.protocols.long_term_keys import Memory
from simfl.protocols.machine import Params
from simfl.protocols.protocol import Protocol
from simfl.protocols.registry import PROTOCOLS
from simfl.protocols.server import Server

PAGE = ROOT / "docs" / "states.md"
BLOCK = re.compile(r"(<!-- python -m docs\.tools\.states -->\n)(.*?)(<!-- end -->\n)", re.S)
PARAMS = Params(d=2, q=101, N=4, T=1, D=1, U=3, t=3, k=2, m=3, memory=Memory())
WIDTH = 36
"""Characters of the user's column."""

Edge = tuple[str, str, str, str]
"""State, message, method, next state."""


def markdown() -> str:
    """Return all diagrams, one for the protocols that have the same machines."""
    names: dict[str, list[str]] = {}
    for name in PROTOCOLS:
        kind = PROTOCOLS[name]
        names.setdefault(diagram(kind()), []).append(name)
        if issubclass(kind, Consistent):
            signed = diagram(kind(consistency="signatures"))
            names.setdefault(signed, []).append(name)
    parts = []
    for drawn, protocols in names.items():
        signs = ", with `consistency: signatures`" if "send_signatures" in drawn else ""
        parts.append(f"**{', '.join(protocols)}**{signs}\n\n```text\n{drawn}```\n")
    return "\n".join(parts)


def diagram(protocol: Protocol) -> str:
    """Return the states of a protocol's user and server side by side."""
    ops = ShadowOps(PARAMS.q)
    client = protocol.client(0, PARAMS, ops, lambda name: bytes(32))
    server = protocol.server(range(PARAMS.N), PARAMS, ops, lambda name: bytes(32))
    assert isinstance(client, Client | BufferedClient)
    assert isinstance(server, Server | BufferedServer)
    first = next(iter(server.stages)) if isinstance(server, Server) else "open"
    users, servers = chain(client.initial, user_edges(client)), chain(first, server_edges(server))
    lines = [("user", "server"), *zip_longest(users, servers, fillvalue="")]
    return "".join(f"{user:<{WIDTH}}{server}".rstrip() + "\n" for user, server in lines)


def user_edges(client: Client | BufferedClient) -> Iterator[Edge]:
    """Yield the entries of a user's table, and the update that its driver submits."""
    state = client.initial
    for (state, message), (method, following) in client.table.items():
        yield state, message.kind, method, following
    in_round = isinstance(client, Client)
    yield ("ready", "(update)", "upload", "uploaded") if in_round else (state, "(update)", "submit", state)


def server_edges(server: Server | BufferedServer) -> Iterator[Edge]:
    """Yield the stages of a round's server, or the table of a buffer's."""
    if isinstance(server, BufferedServer):
        yield from (("open", message.kind, method, "open") for message, method in server.table.items())
        return
    names = [*server.stages, "done"]
    for (name, stage), following in zip(server.stages.items(), names[1:], strict=True):
        yield name, stage.message.kind, stage.then, following


def chain(initial: str, edges: Iterable[Edge]) -> Iterator[str]:
    """Yield the lines of a column: each state after the one that leads to it, below it its transitions."""
    listed, states = list(edges), [initial]
    for state in states:  # which grows on the way
        states += [after for start, _, _, after in listed if start == state and after not in states]
    for state in states:
        yield f"[{state}]"
        for start, message, method, following in listed:
            if start == state:
                yield f"  {'o' if following == state else '|'} {message}: {method}"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(BLOCK.sub(lambda block: block[1] + markdown() + block[3], text), encoding="utf-8")
