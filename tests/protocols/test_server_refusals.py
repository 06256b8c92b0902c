"""What a server ignores and refuses: late, second, strangers' and malformed messages."""

from dataclasses import replace

import numpy as np
import pytest

from simfl.dataplane.handles import F32, U8, Handle
from simfl.protocols.fedavg import PlainUpload
from simfl.protocols.machine import SERVER, GiveUp, Ignore, Message, Reason, Refuse, Timer
from simfl.protocols.pairwise_masks import SecAggServer
from simfl.random_streams import Entropy
from tests.protocols.harness import (
    Between,
    Nonsense,
    Slow,
    check_round,
    instead,
    lose_at,
    misshapen,
    stand_at,
    unread,
    world,
)

SMALL = {"lightsecagg": {"U": 3, "T": 1}, "secagg": {"t": 3}, "fedavg": {}}
masking = pytest.mark.parametrize("protocol", ["lightsecagg", "secagg"])
FIELD = {"advertise": "publics", "shares": "sealed", "upload": "masked", "recovery": "content"}
WAITS = [(p, stage) for p in ("lightsecagg", "secagg") for stage in FIELD] + [("fedavg", "upload")]
everywhere = pytest.mark.parametrize(("protocol", "stage"), WAITS, ids=[f"{p}-{s}" for p, s in WAITS])
PHASES = {"advertise": "offline", "shares": "offline", "upload": "upload", "recovery": "recovery"}


def field(protocol, stage):
    """Where a message of this stage has its content."""
    return "delta" if protocol == "fedavg" else FIELD[stage]


def refused_at(protocol, stage, change, user=1):
    """A round in which one user's message of a stage is changed and refused, its sender lost by that."""
    w = world(protocol, 4, **SMALL[protocol])
    w.server = Between(w.server, lambda s, m: change(m) if (s, m.point) == (user, stage) else m)
    out = w.run()
    if protocol == "fedavg":
        assert [m.user for m in out.result.members] == [0, 2, 3]
    else:
        assert check_round(w, out, {user: stage}, 3, honest=False)
    assert GiveUp((user,), PHASES[stage]) in out.gave_up
    return out


# --- ignored --------------------------------------------------------------------------------------
@everywhere
def test_unexpected_message_is_ignored_unread(protocol, stage):
    w = world(protocol, 4, **SMALL[protocol])
    held, server = stand_at(w, stage), w.server
    order = [s.message for s in server.stages.values()]
    now = server.stages[stage].message
    assert set(held) == {0, 1, 2, 3}

    def ignored(sender, kind, why):
        before = dict(server.got)
        assert server.receive(sender, unread(kind)) == [Ignore(sender, kind.kind, why)]
        assert server.got == before
        return True

    for kind in order:
        if kind != now:
            assert ignored(0, kind, Reason.LATE if order.index(kind) < order.index(now) else Reason.EARLY)
    assert ignored(0, Nonsense, Reason.UNKNOWN)
    assert ignored(4, now, Reason.UNEXPECTED)
    assert ignored(SERVER, now, Reason.UNEXPECTED)
    assert server.receive(0, held[0]) == []
    assert ignored(0, now, Reason.REPEATED)
    assert server.gone(1) == [GiveUp((1,), PHASES[stage])]
    assert ignored(1, now, Reason.UNEXPECTED)
    assert server.gone(1) == []
    assert server.gone(0) == []  # it has answered
    assert ignored(0, now, Reason.REPEATED)
    assert set(server.got) == {0}


@pytest.mark.parametrize("protocol", SMALL)
def test_after_its_end_a_round_takes_nothing(protocol):
    w = world(protocol, 4, **SMALL[protocol])
    out = w.run()
    assert out.result
    for stage, waits in w.server.stages.items():
        late = w.server.receive(0, unread(waits.message))
        assert late == [Ignore(0, waits.message.kind, Reason.LATE)]
        stale = [Ignore(SERVER, "timer", Reason.STALE_TIMER)]
        assert w.server.expire(Timer(stage, waits.phase)) == stale
        assert w.server.expire(Timer(f"{stage} grace", waits.phase)) == stale
    for user in w.clients:  # whether its last message was waited for or not
        assert w.server.gone(user) == []


@everywhere
def test_a_timer_of_another_stage_is_ignored(protocol, stage):
    w = world(protocol, 4, **SMALL[protocol])
    stand_at(w, stage)
    for other in {*FIELD, *(f"{name} grace" for name in FIELD)} - {stage, f"{stage} grace"}:
        timer = Timer(other, "offline")
        assert not w.server.awaits(timer)
        assert w.server.expire(timer) == [Ignore(SERVER, "timer", Reason.STALE_TIMER)]
        assert w.server.stage == stage


@pytest.mark.parametrize("protocol", SMALL)
def test_a_delayed_upload_is_thrown_away_unread(protocol):
    """Its user was declared lost before it came: what it holds is never touched."""
    w = world(protocol, 4, **SMALL[protocol])
    where = field(protocol, "upload")

    def emptied(sender, message):
        late = (sender, message.point) == (2, "upload")
        return replace(message, **{where: unread(Handle)}) if late else message

    w.server = Slow(Between(w.server, emptied), {2: "upload"})
    out = w.run()
    assert (SERVER, Ignore(2, "upload", Reason.LATE)) in out.ignored
    if protocol == "fedavg":
        assert [m.user for m in out.result.members] == [0, 1, 3]
    else:
        assert check_round(w, out, {2: "upload"}, 3)


# --- refused --------------------------------------------------------------------------------------
@everywhere
@pytest.mark.parametrize("shape", range(4))
def test_a_malformed_message_is_refused_and_its_sender_given_up(protocol, stage, shape):
    seen, where = [], field(protocol, stage)

    def change(m):
        seen[:] = getattr(m, where), misshapen(getattr(m, where))[shape]
        return replace(m, **{where: seen[1]})

    out = refused_at(protocol, stage, change)
    kind = "answer" if stage == "recovery" else stage
    assert out.refused == [(SERVER, Refuse(1, kind, instead(*seen)))]


@everywhere
def test_a_message_of_another_type_is_ignored_whatever_its_kind(protocol, stage):
    w = world(protocol, 4, **SMALL[protocol])
    stand_at(w, stage)
    kind = w.server.stages[stage].message.kind
    impostor = type("Impostor", (Message,), {"kind": kind, "phase": PHASES[stage], "point": stage})()
    assert w.server.receive(1, impostor) == [Ignore(1, kind, Reason.UNKNOWN)]
    assert not w.server.got


@everywhere
def test_nothing_is_expected_after_a_malformed_message(protocol, stage):
    w = world(protocol, 5, **SMALL[protocol])
    held, server, where = stand_at(w, stage), w.server, field(protocol, stage)
    bad = replace(held[1], **{where: misshapen(getattr(held[1], where))[0]})
    refusal, given_up = server.receive(1, bad)
    assert refusal.sender == 1
    assert given_up == GiveUp((1,), PHASES[stage])
    assert server.receive(1, held[1]) == [Ignore(1, held[1].kind, Reason.UNEXPECTED)]
    for user in (0, 2, 3, 4):
        if server.stage == stage:
            assert 1 not in server.expected
            server.receive(user, held[user])
    assert server.stage != stage
    assert 1 not in server.expected


@pytest.mark.parametrize("weight", [0, -1])
def test_a_plain_upload_with_a_weight_below_1_is_refused(weight):
    out = refused_at("fedavg", "upload", lambda m: replace(m, weight=weight))
    assert out.refused == [(SERVER, Refuse(1, "upload", f"malformed: a weight of {weight}"))]


def test_a_plain_upload_of_weight_1_is_taken():
    w = world("fedavg", 2)
    stand_at(w, "upload")
    w.server.receive(0, PlainUpload(Handle(1, 5, F32), 1))
    assert set(w.server.got) == {0}


MISSING = {"doubled": (2, 2), "a stranger's": (9,), "lost before it shared": (3,), "its own": (1,)}


@pytest.mark.parametrize("missing", MISSING.values(), ids=MISSING)
def test_answer_missing_a_share_never_sent_is_refused(missing):
    w = world("secagg", 5, t=3)

    def change(sender, m):
        if (sender, m.kind) != (1, "answer"):
            return m
        rows = w.ops.pick(m.content, range(m.content.rows - len(missing)))
        return replace(m, content=rows, missing=missing)

    w.server = Between(w.server, change)
    out = w.run(fate=lose_at({3: "shares"}))
    why = "malformed: misses shares that it was never sent"
    assert out.refused == [(SERVER, Refuse(1, "answer", why))]
    assert check_round(w, out, {3: "shares"}, 3, honest=False)


@pytest.mark.parametrize(("missing", "rows"), [((), 3), ((2,), 4), ((2, 0), 3), ((2,), 2)])
def test_an_answer_has_a_row_for_each_share_it_does_not_miss(missing, rows):
    def change(m):
        return replace(m, content=Handle(rows, 36, U8), missing=missing)

    out = refused_at("secagg", "recovery", change)
    why = instead(Handle(4 - len(missing), 36, U8), Handle(rows, 36, U8))
    assert out.refused == [(SERVER, Refuse(1, "answer", why))]


def test_a_sum_of_coded_shares_misses_none():
    out = refused_at("lightsecagg", "recovery", lambda m: replace(m, missing=(2,)))
    assert out.refused == [(SERVER, Refuse(1, "answer", "malformed: a sum that misses shares"))]


# --- what cannot be told by shape ------------------------------------------------------------------
def first_limb(value):
    def lie(content):
        out = content.copy()
        out[:, :4] = np.frombuffer(value.to_bytes(4, "little"), np.uint8)
        return out

    return lie


LIES = {
    "a limb that is none": first_limb(2**32 - 1),
    "the largest limb": first_limb(2**31 - 2),
    "no limb zero": lambda content: content ^ 1,
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_shares_that_do_not_belong_to_one_secret_abort_the_round(lie):
    """Or give another secret: then the sum is wrong, which the audit finds."""
    w = world("secagg", 4, t=3)

    def change(sender, m):
        if (sender, m.kind) != (1, "answer"):
            return m
        return replace(m, content=Handle(m.content.rows, 36, U8, lie(m.content.content)))

    w.server = Between(w.server, change)
    out = w.run()
    if out.result is None:
        assert out.reason == "recovery: the shares of user 0 do not belong to one secret"
        assert out.verdict is not None
    else:
        assert lie is not LIES["a limb that is none"]


# --- the server's own care --------------------------------------------------------------------------
@masking
def test_a_sum_over_one_user_is_refused_from_the_start(protocol):
    few = {"lightsecagg": {"U": 1, "T": 0}, "secagg": {"t": 1}}[protocol]
    with pytest.raises(ValueError, match="a sum over one user is that user's update: at least 2 must be"):
        world(protocol, 3, **few)


def over(graph, t):
    """SecAgg over a graph: for each user its neighbours."""
    w = world("secagg", len(graph), t=t)
    closed = {u: tuple(sorted({u, *others})) for u, others in graph.items()}
    w.server = SecAggServer(closed, w.params, w.ops, Entropy(bytes(32)))
    return w


def ring(users, t):
    return over({u: ((u - 1) % users, (u + 1) % users) for u in range(users)}, t)


def test_a_user_with_too_few_neighbours_is_given_up():
    w = ring(7, t=2)
    out = w.run(fate=lose_at({0: "advertise", 2: "advertise"}))
    assert check_round(w, out, dict.fromkeys((0, 1, 2), "advertise"), 2)
    assert GiveUp((1,), "offline") in out.gave_up
    told = {to for _, to, m in out.sent if m.kind == "roster"}
    assert told == {3, 4, 5, 6}
    w = ring(7, t=2)
    out = w.run(fate=lose_at({0: "shares", 2: "shares"}))
    assert check_round(w, out, dict.fromkeys((0, 1, 2), "shares"), 2)
    assert GiveUp((1,), "offline") in out.gave_up
    assert {to for _, to, m in out.sent if m.kind == "inbox"} == {3, 4, 5, 6}


def test_a_round_that_cannot_be_reliable_ends_after_uploads():
    w = ring(6, t=3)
    out = w.run(fate=lose_at({2: "upload"}))
    assert out.reason == "upload: 2 users left with shares of user 1, 3 needed"
    assert not [m for _, _, m in out.sent if m.kind == "survivors"]
    assert not out.refused
    assert (out.verdict.survivors, out.verdict.reliable) == ((6, 6, 5, 0), False)
    w = ring(6, t=2)
    out = w.run(fate=lose_at({2: "upload"}))
    assert check_round(w, out, {2: "upload"}, 2)
    assert (out.verdict.survivors, out.verdict.reliable) == ((6, 6, 5, 4), True)  # the fifth is not needed


def test_a_user_lost_with_all_neighbours_is_not_needed():
    """No upload holds a mask of user 0, and nobody could give its secrets back."""
    w = over({0: (1, 2), 1: (0, 2, 3, 4), 2: (0, 1, 3, 4), 3: (1, 2, 4, 5), 4: (1, 2, 3, 5), 5: (3, 4)}, t=2)
    lost = dict.fromkeys((0, 1, 2), "upload")
    out = w.run(fate=lose_at(lost))
    assert check_round(w, out, lost, 2)
    assert out.verdict.reliable
