"""What does not authenticate is discarded, alone and by its sender's name."""

from dataclasses import replace

import pytest

from simfl.crypto.field import Q
from simfl.dataplane.eager import EagerOps
from simfl.dataplane.handles import U8, Handle
from simfl.dataplane.shadow import ShadowOps
from simfl.protocols.machine import SERVER, Ignore, Reason, Refuse
from tests.protocols.harness import (
    Between,
    check_round,
    world,
)
from tests.protocols.test_refusals import SMALL, altered, both, never_uploads


# --- what does not authenticate ------------------------------------------------------------------
def swapped(rows):
    return rows[[1, 0, *range(2, len(rows))]]


def by_content(change):
    """The rows as changed, with nothing in the control plane to tell of it."""
    return lambda ops, m: replace(
        m, sealed=Handle(m.sealed.rows, m.sealed.columns, m.sealed.dtype, change(ops, m.sealed))
    )


FORGERIES = {
    "flag and content": (lambda ops, m: replace(m, sealed=ops.tamper(m.sealed, 1)), [2]),
    "content alone": (by_content(lambda ops, sealed: ops.tamper(sealed, 1).content), [2]),
    "two flags": (lambda ops, m: replace(m, sealed=ops.tamper(ops.tamper(m.sealed, 2), 0)), [1, 3]),
    "the shares of two senders swapped": (by_content(lambda ops, sealed: swapped(sealed.content)), [1, 2]),
    "every row": (by_content(lambda ops, sealed: sealed.content ^ 1), [1, 2, 3]),
}


@both
@pytest.mark.parametrize(("change", "culprits"), FORGERIES.values(), ids=FORGERIES)
def test_a_share_that_does_not_authenticate_is_discarded_alone(protocol, change, culprits):
    w, out = altered(protocol, "inbox", change)
    assert out.refused == [(0, Refuse(user, "share", "does not authenticate")) for user in culprits]
    client = w.clients[0]
    kept = [user for user in (1, 2, 3, 0) if user not in culprits]
    assert client.held_shares.rows == len(kept)
    assert list(client.held_share_owners) == kept
    answers = [m for sender, _, m in out.sent if sender == 0 and m.kind == "answer"]
    if protocol == "secagg":  # it masks with them as ever, and says whose shares it lacks
        assert [m.missing for m in answers] == [tuple(culprits)]
        assert answers[0].content.rows == len(kept)
    else:  # the sum that it is asked for has no share of theirs to add
        assert not answers
        none = Ignore(SERVER, "survivors", Reason.NO_SHARE, detail=f"user {culprits[0]}")
        assert (0, none) in out.ignored
    assert check_round(w, out, {}, 3, honest=False)


@both
def test_tampering_reaches_the_receiver_of_that_row_alone(protocol):
    for ops in (EagerOps(Q), ShadowOps(Q)):
        w = world(protocol, 5, ops=ops, **SMALL[protocol])

        def change(sender, m, ops=ops):
            return replace(m, sealed=ops.tamper(m.sealed, 2)) if (sender, m.kind) == (1, "shares") else m

        w.server = Between(w.server, change)
        out = w.run()
        # row 2 of user 1 is for the third of 0, 2, 3, 4
        assert out.refused == [(3, Refuse(1, "share", "does not authenticate"))]
        assert [m.user for m in out.result.members] == [0, 1, 2, 3, 4]


def without_key(m, row):
    content = m.publics.content.copy()
    content[row] = 0
    return replace(m, publics=Handle(m.publics.rows, 32, U8, content))


@pytest.mark.parametrize(
    ("protocol", "row", "kind"),
    [("lightsecagg", 2, "roster"), ("secagg", 2, "roster"), ("secagg", 4 + 2, "inbox")],
    ids=["lightsecagg: channel", "secagg: channel", "secagg: mask"],
)
def test_a_low_order_public_key_is_refused_by_its_owners_name(protocol, row, kind):
    w, out = altered(protocol, "roster", lambda ops, m: without_key(m, row))
    assert out.refused == [(0, Refuse(2, kind, "low-order public key"))]
    assert never_uploads(w, out)
