"""As many losses as a protocol withstands, anywhere in the round, and one more."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.trace.rows import Aggregated, Sent
from tests.engine.harness import of, run, script
from tests.sizes import examples

N, T, U = 20, 10, 14
TWENTY = {"population.users": N, "privacy": {"T": T, "D": N - U, "U": U}, "learning.epochs": 1}
POINTS = ("advertise", "shares", "training", "upload", "recovery")
WHENS = ("before_send", "mid_send", "after_send")
Loss = tuple[int, str, str]

LEAST = {"lightsecagg": U, "secagg": T + 1}
"""Users whose answers recovery needs."""


def losses(count: int, points: tuple[str, ...] = POINTS) -> st.SearchStrategy[list[Loss]]:
    users = st.permutations(range(N)).map(lambda order: order[:count])
    where = st.tuples(st.sampled_from(points), st.sampled_from(WHENS))
    return st.tuples(users, st.lists(where, min_size=count, max_size=count)).map(
        lambda both: [(user, *place) for user, place in zip(*both, strict=True)]
    )


def counted(planned: list[Loss]) -> set[int]:
    """Whose upload the server has in time: lost after it was sent, or not at all."""
    gone = {u for u, at, when in planned if at != "recovery" and (at, when) != ("upload", "after_send")}
    return set(range(N)) - gone


def round_of(name: str, planned: list[Loss]) -> tuple[dict[str, Any], set[int], set[int]]:
    """The round's summary, the members of its aggregate, and whose uploads arrived."""
    lost = script(*((user, 0, at, when) for user, at, when in planned))
    result = run({**TWENTY, "protocols": [name], "dropout": lost})
    trace = result.traces[name]
    members = {user for row in of(trace, Aggregated) for user, _, _ in row.members}
    arrived = {m.sender for m in of(trace, Sent, kind="upload") if m.arrived is not None}
    (entry,) = result.summary["protocols"][name]["rounds"]
    return entry, members, arrived


@pytest.mark.ci
@pytest.mark.parametrize("name", LEAST)
def test_as_many_losses_as_allowed_leave_an_exact_sum(name: str) -> None:
    @settings(max_examples=examples(15), deadline=None)
    @given(losses(N - LEAST[name]))
    def check(planned: list[Loss]) -> None:
        entry, members, arrived = round_of(name, planned)
        assert entry["status"] == "completed"
        assert entry["aggregate_exact"] is True
        assert members == arrived == counted(planned)
        assert entry["survivors"] == len(members)

    check()


@pytest.mark.ci
@pytest.mark.parametrize("name", LEAST)
def test_one_more_loss_before_recovery_aborts(name: str) -> None:
    @settings(max_examples=6, deadline=None)
    @given(losses(N - LEAST[name] + 1, ("advertise", "shares", "training")))
    def check(planned: list[Loss]) -> None:
        entry, members, _ = round_of(name, planned)
        assert (entry["status"], entry["aggregate_exact"], members) == ("aborted", None, set())
        assert f"{LEAST[name] - 1} users answered, {LEAST[name]} needed" in entry["reason"]

    check()


@pytest.mark.ci(but=["[secagg]"])
@pytest.mark.parametrize("name", LEAST)
def test_one_more_loss_within_recovery_aborts(name: str) -> None:
    planned = [(user, "recovery", "before_send") for user in range(N - LEAST[name] + 1)]
    entry, _, arrived = round_of(name, planned)
    assert arrived == set(range(N))
    assert entry["reason"] == f"recovery: {LEAST[name] - 1} users answered, {LEAST[name]} needed"


@pytest.mark.ci
def test_an_aborted_round_leaves_the_model() -> None:
    lost = script(*((user, 1, "upload", "before_send") for user in range(N - U + 1)))
    result = run({**TWENTY, "protocols": ["lightsecagg"], "rounds": 3, "dropout": lost})
    first, aborted, third = result.summary["protocols"]["lightsecagg"]["rounds"]
    assert aborted["status"] == "aborted"
    assert third["status"] == "completed"
    assert third["accuracy"] is not None
    assert first["accuracy"] != third["accuracy"]
