"""The consistency check: a server that tells users two sets of survivors gets shares for one at most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.crypto.field import Q
from simfl.crypto.shamir import SHARE_BYTES
from simfl.dataplane.eager import EagerOps
from simfl.dataplane.shadow import ShadowOps
from simfl.protocols.consistency import signed_bytes
from simfl.protocols.index_views import Users
from simfl.protocols.keyed_messages import Answer, Signatures, Survivors
from simfl.protocols.long_term_keys import Directory
from simfl.protocols.machine import SERVER, Ignore, Reason, Refusal, Refuse
from simfl.protocols.secagg import SecAgg
from simfl.studies.explore.rounds import explore, make_cohort
from tests.protocols.harness import Between, misshapen, plain_sum, world
from tests.sizes import examples

SMALL: dict[str, dict[str, Any]] = {"lightsecagg": {"U": 3, "T": 1}, "secagg": {"t": 3}}
both = pytest.mark.parametrize("protocol", SMALL)
with_and_without_pki = pytest.mark.parametrize("pki", [False, True], ids=["advertised", "pki"])


def signing(protocol: str, n: int = 4, pki: bool = False, ops: Any = None, **params: Any) -> Any:
    """A round of users who sign."""
    own = {"pki": Directory(bytes(32))} if pki else {}
    chosen = {"consistency": "signatures", "pki": pki}
    return world(protocol, n, ops, settings=chosen, **{**SMALL[protocol], **own, **params})


# --- honest rounds ---------------------------------------------------------------------------------
@both
@with_and_without_pki
def test_signed_round_completes(protocol: str, pki: bool) -> None:
    w = signing(protocol, pki=pki)
    out = w.run()
    assert not out.refused
    assert out.result.total.content[0].tolist() == plain_sum(w, range(4))
    kinds = Counter(message.kind for _, _, message in out.sent)
    assert kinds["signature"] == kinds["signatures"] == 4
    assert {m.size_bytes for _, _, m in out.sent if m.kind == "signature"} == {64}
    assert {m.size_bytes for _, _, m in out.sent if m.kind == "signatures"} == {4 * (4 + 64)}


@both
@with_and_without_pki
def test_signing_adds_bytes(protocol: str, pki: bool) -> None:
    """A key of 32 bytes advertised, or a signature of 64 instead; then 64 up, and 68 of each signer down."""
    of = [
        sizes(run) for run in (world(protocol, 4, **SMALL[protocol]).run(), signing(protocol, pki=pki).run())
    ]
    more = {kind: of[1][kind] - of[0][kind] for kind in of[1] if of[1][kind] != of[0][kind]}
    key = 64 if pki else 32
    assert more == {
        "advertise": 4 * key, "roster": 4 * 4 * key, "signature": 4 * 64, "signatures": 4 * 4 * 68
    }  # fmt: skip


def sizes(out: Any) -> Counter[str]:
    counted: Counter[str] = Counter()
    for _, _, message in out.sent:
        counted[message.kind] += message.size_bytes
    return counted


@both
def test_client_signs_one_set_only(protocol: str) -> None:
    w = signing(protocol)
    w.clients[0] = Twice(w.clients[0])
    out = w.run()
    assert (0, Refuse(SERVER, "survivors", "asks for a second set of survivors")) in out.refused
    assert not [m for sender, _, m in out.sent if sender == 0 and isinstance(m, Answer)]


class Twice:
    """Before a client: it hears of the survivors twice, the second time of others."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine

    def receive(self, sender: int, message: Any) -> Any:
        effects = self.machine.receive(sender, message)
        if isinstance(message, Survivors):
            effects += self.machine.receive(sender, Survivors(Users((0, 1, 2))))
        return effects

    def __getattr__(self, name: str) -> Any:
        return getattr(self.machine, name)


@both
def test_signatures_that_were_not_asked_for_are_unread(protocol: str) -> None:
    client = signing(protocol).clients[0]
    early = client.receive(SERVER, Signatures(Users((0, 1, 2)), None))  # type: ignore[arg-type]
    assert early == [Ignore(SERVER, "signatures", Reason.OUT_OF_PHASE, detail="invited")]


# --- bad signatures --------------------------------------------------------------------------------
def signed_by(w: Any, user: int, text: bytes, secret: Any = None) -> Any:
    return w.ops.sign(secret or w.clients[user].key, text)


def in_place(w: Any, user: int, text: bytes, message: Any, secret: Any = None) -> Any:
    """The signatures, but for one user's, which is of another text or by another key."""
    rows = [w.ops.pick(message.signed, [k]) for k in range(len(message.users))]
    rows[message.users.index(user)] = signed_by(w, user, text, secret)
    return replace(message, signed=w.ops.join(rows))


def of_survivors(
    w: Any, users: tuple[int, ...] = (0, 1, 2, 3), what: str = "survivors", **other: Any
) -> bytes:
    return signed_bytes(what, replace(w.params, **other), Users(users).digest)


def some(w: Any, at: list[int], message: Any) -> Any:
    return Signatures(Users(message.users[k] for k in at), w.ops.pick(message.signed, at))


FORGED = f"{Refusal.FORGED}: that of user 1"
BAD: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "another set": (lambda w, m: in_place(w, 1, of_survivors(w, (0, 1, 2)), m), FORGED),
    "another round": (lambda w, m: in_place(w, 1, of_survivors(w, round=1), m), FORGED),
    "another run": (lambda w, m: in_place(w, 1, of_survivors(w, session=b"x"), m), FORGED),
    "another protocol": (lambda w, m: in_place(w, 1, of_survivors(w, entry="x"), m), FORGED),
    "another purpose": (lambda w, m: in_place(w, 1, of_survivors(w, what="keys"), m), FORGED),
    "another's key": (lambda w, m: in_place(w, 1, of_survivors(w), m, w.clients[2].key), FORGED),
    "a bit": (lambda w, m: replace(m, signed=w.ops.tamper(m.signed, 1)), FORGED),
    "swapped": (lambda w, m: replace(m, users=Users((1, 0, 2, 3))), f"{Refusal.FORGED}: that of user 1"),
    "doubled": (lambda w, m: some(w, [0, 1, 1], m), Refusal.DOUBLED),
    "too few": (lambda w, m: some(w, [0, 1], m), f"{Refusal.FEW}: 2, 3 needed"),
    "none": (lambda w, m: some(w, [], m), f"{Refusal.FEW}: 0, 3 needed"),
    "a stranger's": (lambda w, m: replace(m, users=Users((0, 1, 2, 9))), Refusal.STRANGER),
}  # fmt: skip


@pytest.mark.ci(but=["none"])
@both
@with_and_without_pki
@pytest.mark.parametrize("bad", BAD)
def test_a_bad_signature_is_refused(protocol: str, pki: bool, bad: str) -> None:
    w, (change, why) = signing(protocol, pki=pki), BAD[bad]
    w.clients[0] = Between(w.clients[0], lambda s, m: change(w, m) if m.kind == "signatures" else m)
    out = w.run()
    assert out.refused == [(0, Refuse(SERVER, "signatures", why))]
    assert w.clients[0].state == "refused"
    assert not [m for sender, _, m in out.sent if sender == 0 and isinstance(m, Answer)]
    assert out.result.total.content[0].tolist() == plain_sum(w, range(4))  # the others were enough


@both
def test_the_same_texts_rightly_signed_pass(protocol: str) -> None:
    w = signing(protocol)
    again = partial(in_place, w, 1, of_survivors(w))
    w.clients[0] = Between(w.clients[0], lambda s, m: again(m) if m.kind == "signatures" else m)
    assert not w.run().refused


@both
def test_signatures_of_another_shape_are_refused(protocol: str) -> None:
    for k in range(4):
        w = signing(protocol)
        w.clients[0] = Between(
            w.clients[0],
            lambda s, m, k=k: replace(m, signed=misshapen(m.signed)[k]) if m.kind == "signatures" else m,
        )
        ((user, refusal),) = w.run().refused
        assert user == 0
        assert refusal.why.startswith("malformed: ")


@both
@with_and_without_pki
def test_shadow_refuses_tampered_signatures(protocol: str, pki: bool) -> None:
    seen = []
    for ops in (EagerOps(Q), ShadowOps(Q)):
        w = signing(protocol, pki=pki, ops=ops)
        w.clients[0] = Between(
            w.clients[0], lambda s, m, w=w: BAD["a bit"][0](w, m) if m.kind == "signatures" else m
        )
        seen.append(w.run().refused)
    assert seen[0] == seen[1] == [(0, Refuse(SERVER, "signatures", FORGED))]


# --- a server that lies about survivors --------------------------------------------------------------
def lied_to(protocol: str, told: dict[int, tuple[int, ...]], sign: bool, **params: Any) -> Any:
    """A round in which each user is told survivors of its own, and then whatever signatures fit them."""
    n = len(told)
    w = signing(protocol, n, **params) if sign else world(protocol, n, **{**SMALL[protocol], **params})
    w.clients = {user: Between(client, partial(lie, w, told, user)) for user, client in w.clients.items()}
    return w, w.run()


def lie(w: Any, told: dict[int, tuple[int, ...]], user: int, sender: int, message: Any) -> Any:
    if isinstance(message, Survivors):
        return Survivors(Users(told[user]))
    if isinstance(message, Signatures):
        fitting = [k for k, other in enumerate(message.users) if told[other] == told[user]]
        return some(w, fitting, message) if len(fitting) >= w.clients[user].t else message
    return message


def answered(told: dict[int, tuple[int, ...]], out: Any) -> Counter[tuple[int, ...]]:
    """The answers by the set of survivors that they are about."""
    return Counter(told[sender] for sender, _, m in out.sent if isinstance(m, Answer))


def leaks(w: Any, out: Any, told: dict[int, tuple[int, ...]]) -> bool:
    """Both kinds of share of one user came, or more than T coded shares of a second sum."""
    if w.protocol == "secagg":
        return bool(revealed(w, out, 0) & revealed(w, out, 1))
    sets = answered(told, out)
    return sets.total() - max(sets.values(), default=0) > w.params.T


def revealed(w: Any, out: Any, half: int) -> set[int]:
    """The users of whom the server got shares of b_i (half 0) or of s_i (half 1)."""
    owners = set()
    for sender, to, message in out.sent:
        if to == SERVER and isinstance(message, Answer):
            client, got = w.clients[sender], {bytes(row) for row in message.content.content}
            for owner, row in zip(client.held_share_owners, client.held_shares.content, strict=True):
                if bytes(row[half * SHARE_BYTES : (half + 1) * SHARE_BYTES]) in got:
                    owners.add(owner)
    return owners


TWO_STORIES = {0: (0, 1, 2, 3), 1: (0, 1, 2, 3), 2: (0, 1, 2, 3), 3: (0, 2, 3, 4), 4: (0, 2, 3, 4)}


@both
def test_two_stories_leak_unless_survivors_are_signed(protocol: str) -> None:
    assert leaks(*lied_to(protocol, TWO_STORIES, sign=False), TWO_STORIES)
    w, out = lied_to(protocol, TWO_STORIES, sign=True)
    assert not leaks(w, out, TWO_STORIES)
    refused = {user: refusal.why for user, refusal in out.refused}
    assert set(refused) == {3, 4}
    assert all(why.startswith((Refusal.FORGED, Refusal.STRANGER)) for why in refused.values())


def test_half_the_users_are_too_few_to_be_a_threshold() -> None:
    """2 t = N: then each half of the users signs a set of its own, and the check holds nobody back."""
    halves = {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)}
    w, out = lied_to("secagg", halves, sign=True, t=2)
    assert not out.refused
    assert leaks(w, out, halves)


@pytest.mark.ci(but=["[secagg]"])
@both
@settings(max_examples=examples(80), deadline=None)
@given(data=st.data())
def test_users_answer_for_one_set_of_survivors_only(protocol: str, data: st.DataObject) -> None:
    stories = st.sampled_from([(0, 1, 2, 3), (1, 2, 3, 4), (0, 1, 2, 3, 4), (0, 2, 4), (0, 1, 3)])
    told = {}
    for user in range(5):
        told[user] = data.draw(stories.filter(lambda users, user=user: user in users))
    w, out = lied_to(protocol, told, sign=True)
    assert len(answered(told, out)) <= 1
    assert not leaks(w, out, told)


def test_a_pki_without_signatures_is_a_problem() -> None:
    with pytest.raises(ValueError, match="nothing is signed without it"):
        SecAgg(pki=True)


# --- losses ----------------------------------------------------------------------------------------
@pytest.mark.ci
@pytest.mark.parametrize("protocol", ["secagg", "secagg_plus", "ccesa", "lightsecagg"])
@pytest.mark.parametrize("affected_users", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_every_loss_of_four_users_keeps_every_invariant(protocol: str, affected_users: int) -> None:
    cohort = make_cohort(protocol, 4, overrides={f"protocols.{protocol}.consistency": "signatures"})
    assert "consistency" in cohort.points  # type: ignore[union-attr]
    report = explore(cohort, affected_users=affected_users)
    assert report.violation is None
    assert report.completed > 20
