"""What a client refuses: all that an honest server never asks, and all that does not authenticate."""

from dataclasses import replace

import numpy as np
import pytest

from simfl.crypto import keys
from simfl.crypto.field import Q
from simfl.crypto.shamir import SHARE_BYTES
from simfl.protocols.base import SERVER, Ignore
from simfl.protocols.keying import Invite, Survivors
from simfl.protocols.ops import EagerOps, Handle, ShadowOps
from tests.protocols.harness import Between, Buffers, check_round, lose_at, world

SMALL = {"lightsecagg": {"U": 3, "T": 1}, "secagg": {"t": 3}}
both = pytest.mark.parametrize("protocol", SMALL)


def altered(protocol, kind, change, user=0, n=4, ops=None):
    """A round in which one user gets a changed message of one kind."""
    w = world(protocol, n, ops=ops, **SMALL[protocol])
    alter = Between(w.clients[user], lambda s, m: change(w.ops, m) if m.kind == kind else m)
    w.clients[user] = alter
    return w, w.run()


LISTS = {
    "too few": (0, 1),
    "doubled": (0, 1, 2, 2),
    "doubled up to the threshold": (0, 1, 1),
    "without the receiver": (1, 2, 3),
    "strangers up to the threshold": (0, 1, 9),
    "nobody": (),
}


@both
@pytest.mark.parametrize("users", LISTS.values(), ids=LISTS)
def test_a_client_answers_for_no_dishonest_list_of_survivors(protocol, users):
    w, out = altered(protocol, "survivors", lambda ops, m: Survivors(users))
    assert [(user, refuse.why.split(":")[:2]) for user, refuse in out.refused] == [
        (0, ["survivors", " server"])
    ]
    assert not [m for sender, _, m in out.sent if sender == 0 and m.kind == "answer"]
    assert w.clients[0].receive(SERVER, Survivors((0, 1, 2))) == [Ignore("survivors in state refused")]
    assert out.result.total.content is not None  # the others were enough


@both
def test_a_client_refuses_survivors_that_it_has_no_share_of(protocol):
    _, out = altered(protocol, "survivors", lambda ops, m: Survivors((0, 1, 2, 3, 9)))
    assert "stranger 9" in out.refused[0][1].why


@both
def test_a_client_never_answers_twice(protocol):
    w = world(protocol, 4, **SMALL[protocol])
    w.run()
    for users in [(0, 1, 2, 3), (0, 1, 2)]:
        assert w.clients[0].receive(SERVER, Survivors(users)) == [Ignore("survivors in state answered")]


@both
def test_a_client_reveals_nothing_before_it_has_uploaded(protocol):
    w = world(protocol, 4, **SMALL[protocol])
    w.updates.clear()
    with pytest.raises(KeyError):  # all are ready, and nobody has an update
        w.run()
    assert w.clients[0].receive(SERVER, Survivors((0, 1, 2, 3))) == [Ignore("survivors in state ready")]


@both
def test_an_invitation_out_of_phase_draws_no_second_key(protocol):
    w = world(protocol, 4, **SMALL[protocol])
    w.run()
    assert w.clients[0].receive(SERVER, Invite()) == [Ignore("invite in state answered")]


@both
@pytest.mark.parametrize(
    ("users", "why"),
    [((0, 1, 2, 2), "twice"), ((0, 1), "below"), ((1, 2, 3), "without me"), ((0, 1, 2, 2**32), "stranger")],
)
def test_a_dishonest_roster_is_refused(protocol, users, why):
    _, out = altered(protocol, "roster", lambda ops, m: replace(m, users=users))
    assert [user for user, _ in out.refused] == [0]
    assert why in out.refused[0][1].why


@both
@pytest.mark.parametrize(
    ("senders", "why"),
    [((1, 2, 2), "twice"), ((1, 2, 9), "stranger 9"), ((1, 2, 0), "stranger 0"), ((1,), "below")],
)
def test_a_dishonest_inbox_is_refused(protocol, senders, why):
    _, out = altered(protocol, "inbox", lambda ops, m: replace(m, senders=senders))
    assert [user for user, _ in out.refused] == [0]
    assert why in out.refused[0][1].why


def swapped(rows):
    return rows[[1, 0, *range(2, len(rows))]]


def by_content(change):
    """The rows as changed, with nothing in the control plane to tell of it."""
    return lambda ops, m: replace(
        m, sealed=Handle(m.sealed.n, m.sealed.length, m.sealed.width, change(ops, m.sealed))
    )


FORGERIES = {
    "flag and content": (lambda ops, m: replace(m, sealed=ops.tamper(m.sealed, 1)), 2),
    "content alone": (by_content(lambda ops, sealed: ops.tamper(sealed, 1).content), 2),
    "the shares of two senders swapped": (by_content(lambda ops, sealed: swapped(sealed.content)), 1),
}


@both
@pytest.mark.parametrize(("change", "culprit"), FORGERIES.values(), ids=FORGERIES)
def test_a_forged_ciphertext_is_refused_by_its_senders_name_and_yields_no_value(protocol, change, culprit):
    w, out = altered(protocol, "inbox", change)
    assert [user for user, _ in out.refused] == [0]
    assert f"user {culprit}: " in out.refused[0][1].why
    assert "not authenticate" in out.refused[0][1].why
    assert not hasattr(w.clients[0], "held")
    assert not [m for sender, _, m in out.sent if sender == 0 and m.kind in ("upload", "answer")]
    out.refused.clear()
    assert check_round(w, out, {0: "upload"}, 3)


@both
def test_tampering_on_the_relay_reaches_the_receivers_of_that_row_alone(protocol):
    for ops in (EagerOps(Q), ShadowOps(Q)):
        w = world(protocol, 5, ops=ops, **SMALL[protocol])

        def change(sender, m, ops=ops):
            return replace(m, sealed=ops.tamper(m.sealed, 2)) if (sender, m.kind) == (1, "shares") else m

        w.server = Between(w.server, change)
        out = w.run()
        # row 2 of user 1 is for the third of 0, 2, 3, 4
        assert [(user, r.why) for user, r in out.refused] == [(3, "inbox: user 1: does not authenticate")]
        assert [m.user for m in out.result.members] == [0, 1, 2, 4]


@both
def test_with_too_many_forgeries_there_is_no_result(protocol):
    w = world(protocol, 4, **SMALL[protocol])
    w.server = Between(
        w.server,
        lambda s, m: (
            replace(m, sealed=w.ops.tamper(w.ops.tamper(m.sealed, 0), 1)) if m.kind == "shares" else m
        ),
    )
    out = w.run()
    assert out.result is None
    assert out.reason.startswith("upload: ")


def test_a_low_order_public_key_is_refused_by_its_owners_name():
    def change(ops, m):
        content = m.publics.content.copy()
        content[2] = 0
        return replace(m, publics=Handle(m.publics.n, 32, 1, content))

    _, out = altered("lightsecagg", "roster", change)
    assert [(u, r.why) for u, r in out.refused] == [(0, "roster: user 2: low-order public key")]


def test_each_row_of_a_secagg_answer_is_one_half_and_the_right_one():
    w = world("secagg", 5, t=3)
    out = w.run(fate=lose_at({3: "upload"}))
    for sender, _, m in out.sent:
        if m.kind == "answer":
            client = w.clients[sender]
            assert m.content.length == SHARE_BYTES
            assert m.content.n == len(client.holders) == 5
            for k, user in enumerate(client.holders):
                b_half, s_half = np.split(client.held.content[k], 2)
                assert (m.content.content[k] == (s_half if user == 3 else b_half)).all()
                assert (b_half != s_half).any()


@pytest.mark.parametrize("protocol", ["secagg", "lightsecagg", "lightsecagg_async"])
def test_no_key_meets_a_nonce_twice(protocol):
    used = []

    class Tapped(EagerOps):
        def _run(self, kernel, shape, args):
            if kernel is keys.seal:
                used.extend(zip(map(bytes, args[0].content), args[2], strict=True))
            return super()._run(kernel, shape, args)

    if protocol == "lightsecagg_async":
        run = Buffers(protocol, 5, seed=1, ops=Tapped(Q), K=2, U=3, T=1, staleness_bound=4)
        assert len(run.play(1000, losses=0.02, late=0.005, keep=4).results) > 5
    else:
        world(protocol, 5, ops=Tapped(Q), **SMALL[protocol]).run()
    assert len(used) >= 20
    assert len(set(used)) == len(used)


@both
def test_a_second_update_is_the_callers_fault(protocol):
    w = world(protocol, 4, **SMALL[protocol])
    w.clients[0].submit(w.updates[0])
    with pytest.raises(ValueError, match="user 0: an update was submitted twice"):
        w.clients[0].submit(w.updates[0])


def test_two_machines_cannot_draw_one_secret():
    w = world("lightsecagg", 4, **SMALL["lightsecagg"])
    entropy = w.clients[0].entropy
    w.clients[1].entropy = entropy
    with pytest.raises(ValueError, match="'channel key' was drawn before"):
        w.run()
