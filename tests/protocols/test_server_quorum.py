"""A server's quorum: a grace for the rest, or an end at once."""

import pytest

from simfl.protocols.machine import SERVER, GiveUp, Ignore, Reason, Surplus, Timer
from tests.protocols.harness import (
    stand_at,
    world,
)


# --- a quorum's grace -------------------------------------------------------------------------------
@pytest.mark.parametrize(("fraction", "after"), [(0.2, 3), (0.6, 4), (0.61, 4), (0.8, 5), (1.0, 6)])
def test_a_quorum_starts_its_grace_once_enough_answered(fraction, after):
    w = world("secagg", 6, t=3)
    w.server.quorum = {"shares": fraction}
    held = stand_at(w, "shares")
    started = [
        user for user in held if w.server.receive(user, held[user]) == [Timer("shares grace", "offline")]
    ]
    assert started == ([after - 1] if after < 6 else [])


def test_a_grace_closes_its_stage_and_no_other():
    w = world("secagg", 6, t=3)
    w.server.quorum = {"shares": 0.5}
    held = stand_at(w, "shares")
    for user in range(4):
        w.server.receive(user, held[user])
    grace = Timer("shares grace", "offline")
    assert w.server.awaits(grace)
    assert w.server.expire(grace)[0] == GiveUp((4, 5), "offline")
    assert w.server.stage == "upload"
    assert not w.server.awaits(grace)
    assert w.server.expire(grace) == [Ignore(SERVER, "timer", Reason.STALE_TIMER)]
    assert w.server.receive(4, held[4]) == [Ignore(4, "shares", Reason.LATE)]


# --- a quorum that closes at once -------------------------------------------------------------------
def test_so_many_answers_close_a_stage_and_the_rest_is_surplus():
    w = world("secagg", 6, t=3)
    w.server.quorum = {"upload": 4}
    held = stand_at(w, "upload")
    for user in range(3):
        assert w.server.receive(user, held[user]) == []
    assert w.server.gone(5) == [GiveUp((5,), "upload")]
    assert w.server.receive(3, held[3])[0] == Surplus((4,), "upload")
    assert w.server.stage == "recovery"
    assert w.server.receive(4, held[4]) == [Ignore(4, "upload", Reason.LATE)]
    assert w.server.gone(4) == []


def test_no_user_is_surplus_if_all_left_are_needed():
    w = world("secagg", 6, t=3)
    w.server.quorum = {"upload": 4}
    held = stand_at(w, "upload")
    for user in (4, 5):
        w.server.gone(user)
    effects = [effect for user in range(4) for effect in w.server.receive(user, held[user])]
    assert w.server.stage == "recovery"
    assert not [effect for effect in effects if isinstance(effect, Surplus | GiveUp)]


@pytest.mark.parametrize(("quorum", "closes"), [(3, True), (0.5, False)])
def test_a_whole_number_needs_no_grace(quorum, closes):
    w = world("secagg", 6, t=3)
    w.server.quorum = {"shares": quorum}
    held = stand_at(w, "shares")
    effects = [effect for user in range(3) for effect in w.server.receive(user, held[user])]
    assert (w.server.stage != "shares") == closes
    assert (Timer("shares grace", "offline") in effects) != closes
