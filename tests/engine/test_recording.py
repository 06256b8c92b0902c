"""A recording's steps, found by what they are."""

from __future__ import annotations

import pytest

from simfl.engine.clocks import Key, Recording, ReplayError, Spans
from simfl.trace.rows import Step


def key(call: str, what: str = "", party: int = 3) -> Key:
    return (0, party, "protocol", call, what)


def recording(*steps: tuple[Key, int]) -> Recording:
    """Steps of so many nanoseconds."""
    rows = (Step(*key, "", -1, -1, 0, 0, ns, (("upload", ns),)) for key, ns in steps)
    return Recording(rows, continued=True)


def ns(spans: Spans | None) -> int:
    assert spans is not None
    return sum(length for _, length in spans)


INBOX, SUBMIT = key("receive", "inbox"), key("submit")


@pytest.mark.parametrize("order", [(INBOX, SUBMIT), (SUBMIT, INBOX)])
def test_steps_come_in_either_order(order: tuple[Key, Key]) -> None:
    found = recording((INBOX, 7), (SUBMIT, 9))
    assert {one: ns(found.next(one)) for one in order} == {INBOX: 7, SUBMIT: 9}
    assert found.next(INBOX) is None


def test_steps_of_a_kind_are_first_in_first_out() -> None:
    found = recording((INBOX, 1), (SUBMIT, 2), (INBOX, 3), (key("receive", "inbox", party=4), 4))
    assert [ns(found.next(INBOX)) for _ in range(2)] == [1, 3]


def test_a_kind_that_was_not_recorded_is_refused() -> None:
    found = recording((INBOX, 1))
    with pytest.raises(ReplayError, match="round 0, party 3: now submit, recorded receive inbox"):
        found.next(SUBMIT)


def test_a_recording_of_a_whole_run_refuses_further_steps() -> None:
    with pytest.raises(ReplayError, match="party 3: now submit, which the recording does not have"):
        Recording([]).next(SUBMIT)
