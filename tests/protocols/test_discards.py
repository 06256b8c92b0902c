"""Shares that do not authenticate, end to end: the sum stays exact without them, or the round is aborted."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.crypto.field import Q
from simfl.dataplane.eager import EagerOps
from simfl.dataplane.handles import U8, Handle
from simfl.dataplane.shadow import ShadowOps
from simfl.protocols.machine import SERVER, GiveUp, Ignore, Reason, Refuse
from tests.protocols.harness import POINTS, Between, Ledger, check_round, lose_at, work_of, world
from tests.sizes import examples

N = 5
PARAMS = {"secagg": {"t": 3}, "lightsecagg": {"U": 3, "T": 1}}
both = pytest.mark.parametrize("protocol", PARAMS)
PAIRS = [(i, j) for i in range(N) for j in range(N) if i != j]


def relayed(protocol, forged, ops=None, flagged=True):
    """A world in which the share of i for j is flipped on its way to j, for each (i, j)."""
    w = world(protocol, N, ops=ops, **PARAMS[protocol])

    def flip(user, m):
        if m.kind != "inbox":
            return m
        sealed = m.sealed
        for k, sender in enumerate(m.senders):
            if (sender, user) in forged:
                sealed = w.ops.tamper(sealed, k)
        return replace(
            m, sealed=sealed if flagged else Handle(sealed.rows, sealed.columns, U8, sealed.content)
        )

    w.clients = {j: Between(c, lambda s, m, j=j: flip(j, m)) for j, c in w.clients.items()}
    return w


def refusals(forged):
    return {(j, Refuse(i, "share", "does not authenticate")) for i, j in forged}


# --- one row ----------------------------------------------------------------------------------------
@pytest.mark.ci(but=["paper-1-3-flag-secagg"])
@both
@pytest.mark.parametrize("flagged", [True, False], ids=["flag", "content alone"])
@pytest.mark.parametrize(("i", "j"), PAIRS)
def test_one_forged_row_costs_that_share_alone(protocol, flagged, i, j):
    w = relayed(protocol, [(i, j)], flagged=flagged)
    out = w.run()
    assert out.refused == list(refusals([(i, j)]))
    assert check_round(w, out, {}, 3, honest=False)
    answers = {sender: m for sender, _, m in out.sent if m.kind == "answer"}
    if protocol == "secagg":
        assert {user: m.missing for user, m in answers.items()} == {
            user: (i,) if user == j else () for user in range(N)
        }
        assert {user: m.content.rows for user, m in answers.items()} == {u: N - (u == j) for u in range(N)}
        assert len(w.server.answered[3]) == 3 + (j < 3)  # one of the first three has no share of user i
    else:
        assert set(answers) == set(range(N)) - {j}
        assert (j, Ignore(SERVER, "survivors", Reason.NO_SHARE, detail=f"user {i}")) in out.ignored


@both
@pytest.mark.parametrize(("i", "j"), [(0, 4), (4, 0), (1, 3)])
def test_a_lost_users_mask_comes_off_without_a_forged_share(protocol, i, j):
    w = relayed(protocol, [(i, j)])
    out = w.run(fate=lose_at({i: "upload"}))
    assert check_round(w, out, {i: "upload"}, 3, honest=False)
    answers = {sender: m for sender, _, m in out.sent if m.kind == "answer"}
    assert set(answers) == set(range(N)) - {i}  # nobody is asked to add a share of who is lost
    assert [user for user, m in answers.items() if m.missing] == ([j] if protocol == "secagg" else [])


# --- too many ---------------------------------------------------------------------------------------
def test_too_few_shares_of_one_secret_abort_a_secagg_round():
    forged = [(1, 0), (1, 2), (1, 4)]
    w = relayed("secagg", forged)
    out = w.run()
    assert set(out.refused) == refusals(forged)
    assert out.result is None
    assert out.reason == "recovery: 2 shares of user 1, 3 needed"
    assert out.verdict.survivors == (N, N, N, N)


def test_with_too_few_sums_a_lightsecagg_round_is_aborted():
    forged = [(1, 0), (2, 3), (1, 4)]
    w = relayed("lightsecagg", forged)
    out = w.run()
    assert set(out.refused) == refusals(forged)
    assert out.result is None
    assert out.reason == "recovery: 2 users answered, 3 needed"
    assert GiveUp((0, 3, 4), "recovery") in out.gave_up


# --- any --------------------------------------------------------------------------------------------
def enough(protocol, forged, points, t=3):
    """Whether what is left gives the sum back, told from sets alone."""
    after = {u: POINTS.index(points[u]) if u in points else len(POINTS) for u in range(N)}
    alive = [{u for u in range(N) if after[u] > k} for k in range(len(POINTS))]
    if min(map(len, alive)) < t:
        return False
    _, shared, uploaded, answered = alive
    if protocol == "lightsecagg":
        return len([j for j in answered if not any((i, j) in forged for i in uploaded)]) >= t
    return all(len([j for j in answered if (i, j) not in forged]) >= t for i in shared)


@pytest.mark.ci(but=["ntt"])
@both
@settings(max_examples=examples(40), deadline=None, derandomize=True)
@given(
    forged=st.sets(st.sampled_from(PAIRS), max_size=8),
    points=st.dictionaries(st.integers(0, N - 1), st.sampled_from(POINTS), max_size=2),
)
def test_forgeries_and_losses_end_in_the_exact_sum_or_an_abort(protocol, forged, points):
    w = relayed(protocol, forged)
    out = w.run(fate=lose_at(points))
    never_shared = {u for u, p in points.items() if p in ("advertise", "shares")}
    assert set(out.refused) == refusals(pair for pair in forged if not never_shared.intersection(pair))
    assert (out.result is not None) == enough(protocol, forged, points)
    if out.result:
        assert check_round(w, out, points, 3, honest=False)
    else:
        assert out.reason.startswith(("upload: ", "recovery: "))


# --- and what it costs ------------------------------------------------------------------------------
@pytest.mark.ci(but=["ntt-secagg"])
@both
@settings(max_examples=examples(25), deadline=None, derandomize=True)
@given(
    forged=st.sets(st.sampled_from(PAIRS), min_size=1, max_size=8),
    points=st.dictionaries(st.integers(0, N - 1), st.sampled_from(POINTS), max_size=1),
)
def test_forgeries_are_charged_alike_executed_or_not(protocol, forged, points):
    ledgers, outs = [], []
    for ops in (EagerOps(Q), ShadowOps(Q)):
        steps = []
        w = relayed(protocol, forged, ops=ops)
        w.server = Ledger(w.server, ops, SERVER, steps)
        w.clients = {u: Ledger(c, ops, u, steps) for u, c in w.clients.items()}
        out = w.run(fate=lose_at(points))
        ledgers.append(steps)
        outs.append((out.reason, out.refused, out.ignored, out.gave_up, out.verdict, out.result is None))
    assert ledgers[0] == ledgers[1]
    assert outs[0] == outs[1]


@both
def test_finding_a_forgery_out_is_work(protocol):
    """Each attempt to open is charged for the rows that it was given."""
    items = []
    for forged in ([], [(1, 0)], [(1, 0), (3, 0)]):
        steps = []
        w = relayed(protocol, forged)
        w.clients[0] = Ledger(w.clients[0], w.ops, 0, steps)
        w.run()
        items.append(work_of(steps)["aead_item"])
    assert items == [4 + 4, 4 + 4 + 3, 4 + 4 + 3 + 2]
