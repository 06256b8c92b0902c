"""What to speed up first: by hand, on a world of two users and one slow link, and on traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from simfl.reports import one_round
from simfl.reports.advice import advice_of, advise, shares
from simfl.reports.assumptions import server_bound
from simfl.runs.results import metrics
from simfl.trace.rows import SERVER, Aggregated, Begin, End, Row, Trace
from tests.engine.harness import run
from tests.reports.conftest import opened
from tests.runs.results.test_metrics import SLOW_USER, sent, step


def test_two_users_and_a_slow_link_by_hand() -> None:
    """Two users, an uplink of 0.01 Mbit/s: 0.8 ms a byte, 2604 bytes in an update.

    On paper, in milliseconds. The model comes down: 2608 bytes at 2 a microsecond, 1.304, and 10 of latency;
    its receipt costs 1. User 1 has 718 of the 1437 samples, user 0 has 719: user 1 is done first, after
    10 x (718 x 1920 x 1e-6 + a minibatch of 0.1) = 14.7856. Its update goes up in 2083.2 and 10 of latency.
    The server needs 1 a message: while it is busy with user 1's, user 0's arrives 0.0192 later and waits. So
    the round hangs on user 1's link, and not on that of user 0. Then 2 x 2.6 + 2.6 + 3.9 microseconds.
    """
    two = {
        "population.users": 2,
        "network.users.uplink_mbps": 0.01,
        "privacy": {"T": 0, "D": 0},
        "learning.batch_size": 720,
        "payload": "shadow",
    }
    result = run(two)
    ((name, rounds),) = result.rounds.items()
    (only,) = rounds
    assert only.critical == {
        ("training", 1, "network"): 11_304_000,
        ("training", 1, "compute"): 1_000_000 + 14_785_600,
        ("upload", 1, "network"): 2_093_200_000,
        ("upload", SERVER, "compute"): 2_000_000,
        ("recovery", SERVER, "compute"): 11_700,
    }
    assert only.end - only.start == 2_122_301_300 == sum(only.critical.values())
    assert advise(result.traces[name], rounds).sentence == (
        "99 % of the time is users' links in upload (all of it user 1's); making it free would save at most "
        "2.09 s of 2.12 s per aggregate."
    )


def narrow(slow: int) -> Trace:
    """Two users whose uploads leave at 11; user 0's needs 10, user 1's `slow`."""
    rows: list[Row] = [*SLOW_USER[:7]]
    rows += [
        step(0, "submit", 5, 11, 11, ("upload", 1)),
        step(1, "submit", 6, 11, 11, ("upload", 1)),
        sent(0, SERVER, "upload", 7, 12, 22),
        sent(1, SERVER, "upload", 8, 12, 12 + slow),
        step(SERVER, "receive", 9, 22, 22, ("upload", 1)),
        step(SERVER, "receive", 10, 12 + slow, 12 + slow, ("recovery", 8)),
        Aggregated(0, ((0, "", 0), (1, "", 0)), 12, 20 + slow),
        End(0, 0, 20 + slow, 12),
    ]
    return Trace(rows)


def test_the_user_whose_own_link_is_slow_is_named() -> None:
    trace = narrow(180)
    assert advise(trace, metrics.rounds(trace)).sentence == (
        "90 % of the time is users' links in upload (all of it user 1's); making it free would save at most "
        "180 ns of 200 ns per aggregate."
    )


def test_a_cheaper_share_saves_no_more_than_stated() -> None:
    """The link is made ten times faster, and free: the round gets shorter by less than the bound."""
    slow, fast, free = (metrics.rounds(narrow(ns))[0] for ns in (180, 18, 0))
    bound = advise(narrow(180), [slow]).shares[0].ns
    assert slow.end - fast.end == 162 < bound
    assert slow.end - free.end == 180 == bound


def test_shares_are_of_all_users_together_and_keep_them_apart() -> None:
    path = {("upload", 3, "network"): 5, ("upload", 4, "network"): 6, ("upload", SERVER, "compute"): 10}
    first, second = shares(path)
    assert (first.what, first.ns, first.by) == ("users' links in upload", 11, ((4, 6), (3, 5)))
    assert (second.what, second.ns, second.by) == ("the server's compute in upload", 10, ((SERVER, 10),))


@pytest.mark.parametrize(("ns", "named"), [(4, ""), (5, " (50 % user 1's)"), (10, " (all of it user 1's)")])
def test_a_user_with_half_of_a_share_is_named(ns: int, named: str) -> None:
    rows: list[Row] = [Begin(0, 0, (1, 2, 3))]
    for user, length in ((1, ns), (2, (10 - ns) // 2), (3, (10 - ns) - (10 - ns) // 2)):
        rows.append(step(user, "train", len(rows) - 1, 0, rows_end(rows), ("training", length)))
    rows += [Aggregated(0, ((1, "", 0),), 3, 10), End(0, 0, 10, 3)]
    trace = Trace(rows)
    assert advise(trace, metrics.rounds(trace)).sentence.startswith(
        f"100 % of the time is users' compute in training{named};"
    )


def rows_end(rows: list[Row]) -> int:
    return getattr(rows[-1], "end", 0)


def test_waiting_is_ended_not_made_free() -> None:
    rows: list[Row] = [
        Begin(0, 0, (0,)),
        step(0, "train", 0, 0, 0, ("training", 10)),
        End(0, 0, 100, 1),
    ]
    trace = Trace(rows)
    assert "users' waiting in training (all of it user 0's); ending it would save at most 90 ns" in (
        advise(trace, metrics.rounds(trace)).sentence
    )


def test_without_a_finished_round_there_is_no_advice() -> None:
    assert advise(Trace(), []).sentence == "no finished round, so nothing to speed up yet."


def test_aborted_rounds_cost_their_time() -> None:
    trace = narrow(180)
    (done,) = metrics.rounds(trace)
    (aborted,) = metrics.rounds(trace)
    aborted.reason = "too few"
    assert advise(trace, [done, aborted]).sentence == (
        "90 % of the time is users' links in upload (all of it user 1's); making it free would save at most "
        "360 ns of 400 ns per aggregate."
    )
    assert advise(trace, [aborted]).sentence.endswith("180 ns of 200 ns in all, for no aggregate.")


def test_training_before_an_aggregation_counts() -> None:
    """Of a buffered run: trained for 80 of the first 50, cut off at the first aggregation; 10 of link, 10 of
    server. The path of the second aggregation alone has only 30 of the training."""
    trace = Trace(
        [
            Begin(0, 0, (0, 1), buffered=True),
            step(0, "train", 0, 0, 0, ("training", 80)),
            step(1, "train", 0, 0, 0, ("training", 50)),
            Aggregated(0, ((1, "1.0", 0),), 2, 50),
            End(0, 0, 50, 2),
            sent(0, SERVER, "upload", 1, 80, 90),
            step(SERVER, "receive", 5, 90, 90, ("recovery", 10)),
            Aggregated(1, ((0, "0.0", 1),), 6, 100),
            End(1, 50, 100, 6),
        ]
    )
    rounds = metrics.rounds(trace)
    assert rounds[1].critical["training", 0, "compute"] == 30
    assert metrics.run_path(trace, rounds) == {
        ("training", 0, "compute"): 80,
        ("upload", 0, "network"): 10,
        ("recovery", SERVER, "compute"): 10,
    }
    assert advise(trace, rounds).sentence == (
        "80 % of the time is users' compute in training (all of it user 0's); making it free would "
        "save at most 40 ns of 50 ns per aggregate."
    )


def test_a_full_link_of_the_server_by_hand(tmp_path: Path) -> None:
    """Four users of 8 Mbit/s share 1 Mbit/s of the server: 8 us a byte, 2604 bytes in an update.

    On paper, in milliseconds. Users with as many samples each begin their uploads at one time, and the last
    bit of all four leaves after 4 x 2604 x 0.008 = 83.328; 10 of latency follow. On its own link each would
    need 2.604, so a faster link of user 0 would save nothing.
    """
    data = {"kind": "synthetic", "train": 40, "test": 10}
    four = {
        "population.users": 4,
        "learning.dataset": data,
        "network.server.downlink_mbps": 1.0,
        "payload": "shadow",
    }
    result = run(four, out=tmp_path)
    ((name, (only,)),) = result.rounds.items()
    assert only.critical["upload", 0, "network"] == 4 * 2604 * 8_000 + 10_000_000
    there = opened(tmp_path)
    assert "is the server's full link in upload; making it free" in advice_of(there, name).sentence
    (sentence,) = one_round.sentences(there, one_round.focus(there, 0, None))
    assert "on the server's full link in upload" in sentence
    # The downloads do not fill the server's other direction.
    assert "on user 0's link in training" in sentence
    wide = run({**four, "network.server.downlink_mbps": 1000.0})
    bound = server_bound(wide.scenario, wide.assumed, wide.traces[name])
    assert not bound
    assert "users' links in upload" in advise(wide.traces[name], wide.rounds[name], bound).sentence
