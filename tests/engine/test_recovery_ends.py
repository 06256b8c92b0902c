"""The end of a recovery, by hand to the nanosecond: the last answer that is needed, or the deadline.

Five equal users, t = U = 3, d = 650; links, overhead and profile are those of `test_losses_timing.py`. All
answers arrive at once, and the server takes them one by one, 1 ms each. The step that takes the last one
needed takes the masks off.
"""

from __future__ import annotations

from typing import Any

import pytest

from simfl.trace.rows import SERVER, Aborted, Aggregated, End, GaveUp, Ignored, Judged, TimerSet, Trace
from tests.engine.harness import of, run, script

US, MS = 1000, 1_000_000
N, t, D = 5, 3, 650
M = D + 1  # with the sum of weights
DEADLINE = 2000 * MS
PROTOCOLS: dict[str, dict[str, Any]] = {
    "secagg": {"t": t},
    "secagg_plus": {"k": 4, "t": t},  # complete
    "ccesa": {"p": 1.0, "t": t},
    "lightsecagg": {},
}
RING = {"k": 2, "t": 2}
ALL = {"all": DEADLINE / 1e9}
LOST = script((0, 0, "recovery", "before_send"))
LATE = script((0, 0, "recovery", "delay"), delay_s=0.5)

by_protocol = pytest.mark.parametrize("name", PROTOCOLS)


def asked(survivors: int, share_rows: int) -> int:
    """From the request of the server to the arrival of the answers of SecAgg, 36 B a share."""
    return (4 * survivors * US // 2 + 10 * MS + 1 * MS) + (36 * share_rows * US + 10 * MS)


def unmasked(shares: int) -> int:
    """Five secrets, each of so many shares; five private masks; the mean; the update."""
    return N * (9 * shares * 7 + shares**2 * 30) + N * M * (2 + 3) + 12 * D + 6 * D


def hand(name: str, answers: int) -> tuple[int, int]:
    """Return (until the answers are there, for taking so many and the masks off)."""
    if name == "lightsecagg":  # a coded share has M / (U - T) = 326 elements; the user adds five
        coded = -(-M // 2)
        arrive = (4 * N * US // 2 + 11 * MS) + 10 * 5 * N * coded + (4 * coded * US + 10 * MS)
        return arrive, answers * MS + 2 * t * coded + t**2 * 100 + 3 * M + 12 * D + 6 * D
    return asked(N, N), answers * MS + unmasked(t)


def traced(name: str, settings: dict[str, Any], **more: Any) -> Trace:
    world = {"population.users": N, "privacy": {"T": 1, "D": 2, "U": t}, "overlap": False}
    (trace,) = run({**world, "protocols": {name: settings}, **more}).traces.values()
    return trace


def lasted(trace: Trace) -> int:
    """Nanoseconds from the opening of the recovery to the end of the round."""
    (opened,), (end,) = of(trace, TimerSet, name="recovery"), of(trace, End)
    assert opened.fires - opened.at == DEADLINE
    return int(end.at - opened.at)


@by_protocol
@pytest.mark.parametrize("dropout", ["none", LOST, LATE], ids=["none", "lost", "late"])
def test_a_recovery_ends_with_three_answers(name: str, dropout: Any) -> None:
    trace = traced(name, PROTOCOLS[name], dropout=dropout)
    assert lasted(trace) == sum(hand(name, t))
    assert [len(row.members) for row in of(trace, Aggregated)] == [N]
    assert not of(trace, GaveUp)


@pytest.mark.ci(but=["ccesa"])
@by_protocol
def test_the_recovery_waits_for_all_users_by_setting(name: str) -> None:
    of_all = {"deadlines.recovery": ALL}
    assert lasted(traced(name, PROTOCOLS[name], **of_all)) == sum(hand(name, N))
    trace = traced(name, PROTOCOLS[name], dropout=LOST, **of_all)
    assert lasted(trace) == DEADLINE + hand(name, 0)[1]
    assert [row.users for row in of(trace, GaveUp)] == [(0,)]
    late = traced(name, PROTOCOLS[name], dropout=LATE, **of_all)
    assert lasted(late) == hand(name, 1)[0] + 500 * MS + hand(name, 1)[1]


def test_on_a_ring_every_circle_of_three_needs_two_answers() -> None:
    """Of any two users of a ring of five some circle holds both: four answers are needed, whoever is lost."""
    for user in range(N):
        trace = traced("secagg_plus", RING, dropout=script((user, 0, "recovery", "before_send")))
        assert lasted(trace) == asked(3, 3) + 4 * MS + unmasked(2)
        assert [row.survivors for row in of(trace, Judged)] == [(N, N, N, 4)]
    two = script((0, 0, "recovery", "before_send"), (1, 0, "recovery", "before_send"))
    trace = traced("secagg_plus", RING, dropout=two)
    assert lasted(trace) == DEADLINE
    assert [row.reason.split(":")[0] for row in of(trace, Aborted)] == ["recovery"]


@by_protocol
def test_later_answers_are_ignored(name: str) -> None:
    """The two that came with the last one needed are taken after the round, unread."""
    trace = traced(name, PROTOCOLS[name], rounds=2)
    first = [row for row in of(trace, Ignored, message="answer") if row.round == 0]
    assert [(row.party, row.why) for row in first] == [(SERVER, "late")] * (N - t)
    (end,) = of(trace, End, round=0)
    assert [row.at - end.at for row in first] == [1 * MS, 2 * MS]
