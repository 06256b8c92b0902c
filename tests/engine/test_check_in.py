"""Check-in before a round, against calculations by hand from its stream of draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simfl.random_streams import Streams
from simfl.runs.results import metrics
from simfl.scenario.load import load
from simfl.trace.rows import CHECK_IN, SERVER, Begin, CheckedIn, End, Lost, Trace
from tests.engine.harness import SYNC, of, run

NS = 10**9
SEED, N, K = 5, 100, 6
WORLD: dict[str, Any] = {
    "seed": SEED,
    "population.users": N,
    "payload": "shadow",
    "rounds": 3,
    "selection": {"random": K},
    "privacy": {"T": 1, "D": 2},
    "learning.partition": {"drawn": 5},
    "protocols": ["fedavg"],
    "check_in": {"every_s": 10.0, "within_s": 50.0},
}


def trace_of(**changes: Any) -> Trace:
    (trace,) = run({**WORLD, **changes}).traces.values()
    return trace


def attempts(index: int) -> list[tuple[int, int]]:
    """Times and users of a round's first attempts: exponential gaps of mean every_s / N, users at random."""
    rng, at, found = Streams(SEED).rng("check-in", index), 0, []
    for _ in range(500):
        at += round(rng.exponential(10.0 / N) * NS)
        found.append((at, int(rng.integers(N))))
    return found


def first_of(index: int, count: int) -> tuple[int, set[int]]:
    """When so many different users have checked in, if all are online, and who they are."""
    users: set[int] = set()
    for at, user in attempts(index):
        users.add(user)
        if len(users) == count:
            return at, users
    raise AssertionError


@pytest.mark.ci
def test_check_in_lasts_until_enough_users_wait() -> None:
    """By hand: the sixth different user of the stream ends it, and the six are the round's users."""
    trace = trace_of()
    for begin, row, round_ in zip(of(trace, Begin), of(trace, CheckedIn), metrics.rounds(trace), strict=True):
        lasts, users = first_of(row.round, K)
        assert (row.at - row.start, row.waiting, row.left) == (lasts, K, 0)
        assert begin.at == row.at
        assert set(begin.users) == users
        # Shown apart on the critical path, of which it is a part.
        assert round_.critical[CHECK_IN, SERVER, "wait"] == lasts
        assert sum(round_.critical.values()) == round_.end - round_.start
        assert round_.start == row.start


def test_users_are_chosen_among_those_that_wait() -> None:
    trace = trace_of(check_in={"every_s": 10.0, "within_s": 50.0, "users": 12})
    for begin, row in zip(of(trace, Begin), of(trace, CheckedIn), strict=True):
        lasts, users = first_of(row.round, 12)
        assert (row.at - row.start, row.waiting, len(begin.users)) == (lasts, 12, K)
        assert set(begin.users) < users


def test_check_in_closes_by_time() -> None:
    """After 0.9 s those that came by then are chosen if they are 6 or more, else the round is skipped."""
    trace = trace_of(check_in={"every_s": 10.0, "within_s": 0.9, "users": 40})
    for begin, row, round_ in zip(of(trace, Begin), of(trace, CheckedIn), metrics.rounds(trace), strict=True):
        users = {user for at, user in attempts(row.round) if at <= 0.9 * NS}
        assert (row.at - row.start, row.waiting) == (0.9 * NS, len(users))
        assert len(begin.users) == (K if len(users) >= K else 0)
        if len(users) < K:
            assert round_.reason == f"selection: {len(users)} of {N} users checked in within 0.9 s"
            assert round_.critical == {(CHECK_IN, SERVER, "wait"): 0.9 * NS}


def test_offline_users_do_not_check_in_and_are_no_loss(tmp_path: Path) -> None:
    """Users 0 to 29 are online for half a second, 30 to 59 always, others never."""
    path = tmp_path / "online.csv"
    ends = [0.5] * 30 + [1e6] * 30
    path.write_text("user,from_s,to_s\n" + "".join(f"{u},0,{end}\n" for u, end in enumerate(ends)))
    trace = trace_of(**{"population.availability": {"trace": str(path)}, "rounds": 1})
    waiting: set[int] = set()
    for at, user in attempts(0):
        if user < 60 and at < ends[user] * NS:
            waiting.add(user)
        if len(waiting) >= K:
            here = {user for user in waiting if at < ends[user] * NS}
            left, waiting = len(waiting) - len(here), here
            if len(waiting) == K:
                break
    (row,), (begin,) = of(trace, CheckedIn), of(trace, Begin)
    assert (row.at, set(begin.users)) == (at, waiting)
    assert row.left >= left
    assert not of(trace, Lost)


def test_mean_time_of_check_in_is_that_of_a_poisson_process() -> None:
    """K exponential waits, the k-th with rate p (N - k) / every_s; 60 rounds, five standard deviations."""
    slots = {"kind": "bernoulli", "p": 0.5, "slot_s": 0.001}
    rounds = of(trace_of(**{"population.availability": slots, "rounds": 60}), CheckedIn)
    waits = 10.0 / (0.5 * (N - np.arange(K)))
    taken = np.mean([(row.at - row.start) / NS for row in rounds if row.left == 0])
    assert abs(taken - waits.sum()) < 5 * np.sqrt((waits**2).sum() / 60) + 0.2


def test_protocols_meet_the_same_check_ins() -> None:
    traces = run({**WORLD, "protocols": ["fedavg", "secagg_plus", "lightsecagg"], "rounds": 1}).traces
    rows = {tuple(of(trace, CheckedIn)) for trace in traces.values()}
    users = {begin.users for trace in traces.values() for begin in of(trace, Begin)}
    assert len(rows) == len(users) == 1


def test_idle_users_are_not_followed() -> None:
    """Of 100 users with sessions, only those that took part have rows of presence."""
    sessions = {"kind": "sessions", "on_s": 2.0, "off_s": 2.0}
    trace = trace_of(**{"population.availability": sessions})
    chosen = {user for begin in of(trace, Begin) for user in begin.users}
    assert {row.user for row in trace if hasattr(row, "online")} <= chosen
    assert [row.at for row in of(trace, End)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"check_in.users": 5}, "check_in.users: users=5 must be at least the 6 users that selection random"),
        ({"selection": "all", "check_in.users": 50}, "must be at least the 100 users that selection all may"),
    ],
)
def test_check_in_that_cannot_serve_the_selection_is_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match=message):
        load(SYNC, {**WORLD, **changes})
