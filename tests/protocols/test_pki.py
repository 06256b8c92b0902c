"""Keys of a round under a PKI: signed, or refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from simfl.protocols.keyed_messages import Signature
from simfl.protocols.machine import SERVER, Refusal, Refuse
from tests.protocols.harness import Between, misshapen
from tests.protocols.test_consistency import both, signing


# --- keys under a PKI ------------------------------------------------------------------------------
def swapped(w: Any, at: int, message: Any) -> Any:
    """The roster with a key of the server's own in one place."""
    n = message.publics.rows
    rows = [w.ops.pick(message.publics, [k]) for k in range(n)]
    rows[at] = w.ops.public(w.ops.secret(bytes(32)))
    return replace(message, publics=w.ops.join(rows))


@both
def test_a_swapped_key_is_refused_under_a_pki(protocol: str) -> None:
    keys = {"lightsecagg": 1, "secagg": 2}[protocol]
    for at in range(4 * keys):
        w = signing(protocol, pki=True)
        w.clients[0] = Between(
            w.clients[0], lambda s, m, at=at, w=w: swapped(w, at, m) if m.kind == "roster" else m
        )
        out = w.run()
        assert out.refused == [(0, Refuse(SERVER, "roster", f"{Refusal.FORGED}: that of user {at % 4}"))]
        assert not [m for sender, _, m in out.sent if sender == 0 and m.kind != "advertise"]


@both
def test_a_swapped_key_passes_without_a_pki(protocol: str) -> None:
    """Then the share that is sealed for the swapped key's user is all that goes wrong."""
    w = signing(protocol)
    w.clients[0] = Between(w.clients[0], lambda s, m: swapped(w, 1, m) if m.kind == "roster" else m)
    assert not [refusal for _, refusal in w.run().refused if refusal.message == "roster"]


@both
def test_keys_without_signatures_are_refused(protocol: str) -> None:
    w = signing(protocol, pki=True)
    bare = lambda s, m: replace(m, signatures=None) if m.kind == "roster" else m  # noqa: E731
    w.clients[0] = Between(w.clients[0], bare)
    why = f"{Refusal.UNSIGNED}: 4 users' are needed"
    assert w.run().refused == [(0, Refuse(SERVER, "roster", why))]


@both
def test_the_server_refuses_keys_without_a_signature(protocol: str) -> None:
    for change, why in (
        (lambda handle: None, Refusal.UNSIGNED),
        (lambda handle: misshapen(handle)[0], "malformed: 0 x 64 uint8 instead of 1 x 64 uint8"),
    ):
        w = signing(protocol, pki=True)

        def alter(sender: int, m: Any, change: Any = change) -> Any:
            mine = m.kind == "advertise" and sender == 1
            return replace(m, signature=change(m.signature)) if mine else m

        w.server = Between(w.server, alter)
        out = w.run()
        assert out.refused == [(SERVER, Refuse(1, "advertise", why))]
        assert [m.user for m in out.result.members] == [0, 2, 3]


@both
def test_a_signature_of_another_shape_is_as_good_as_none(protocol: str) -> None:
    w = signing(protocol)
    w.server = Between(
        w.server,
        lambda s, m: replace(m, signed=misshapen(m.signed)[2]) if isinstance(m, Signature) and s == 1 else m,
    )
    out = w.run()
    assert out.refused == [
        (SERVER, Refuse(1, "signature", "malformed: 1 x 63 uint8 instead of 1 x 64 uint8"))
    ]
    assert [m.user for m in out.result.members] == [0, 1, 2, 3]
