"""Users are picked once enough flights are free: NVFlare's K = 8 in flight, B = 4 in the buffer, O slots."""

from collections import Counter
from itertools import groupby

import pytest

from simfl.errors import ScenarioError
from simfl.scenario.load import load
from simfl.trace.rows import Aggregated, GaveUp, Step
from tests.engine.harness import ASYNC, run

EIGHT = {
    "protocols": ["fedbuff"],
    "quantization": None,
    "privacy": None,
    "rounds": 25,
    "population.users": 12,
    "deadlines.upload": 20.0,
    "buffer": {"K": 4, "staleness_bound": 20, "concurrency": 8},
}


def trace_of(slots, **more):
    return run({**EIGHT, "buffer": {**EIGHT["buffer"], **more, "open_slots": slots}}, ASYNC).traces["fedbuff"]


def free_before_picks(trace):
    """Free flights before each pick, and how many users are picked one after another."""
    free, seen = 8, []
    for row in trace:
        match row:
            case Step(call="begin"):
                seen.append(("begin", free))
                free -= 1
            case Step(call="receive", what="upload", party=-1) | GaveUp():
                seen.append(("end", free))
                free += 1
    runs = [list(group) for kind, group in groupby(seen, lambda item: item[0] == "begin") if kind]
    return [(group[0][1], len(group)) for group in runs]


@pytest.mark.parametrize("slots", [1, 3])
def test_users_are_picked_once_the_slots_are_free(slots):
    """400 updates would take 100 aggregations; 25 of them are 100."""
    picks = free_before_picks(trace_of(slots))
    assert picks[0] == (8, 8)
    # More may be free where uploads come in while the picked users' cycles begin.
    assert min(free for free, _ in picks) == slots
    assert Counter(free for free, _ in picks).most_common(1)[0][0] == slots


def test_all_slots_are_synchronous_rounds():
    """K = B = O: all 8 are picked for each aggregate, so no update is stale."""
    trace = trace_of(8, K=8)
    stale = {staleness for row in trace if isinstance(row, Aggregated) for _, _, staleness in row.members}
    assert stale == {0}
    assert set(free_before_picks(trace)) == {(8, 8)}
    trace = trace_of(1, K=8)
    assert any(staleness for row in trace if isinstance(row, Aggregated) for _, _, staleness in row.members)


def test_one_slot_is_the_default():
    plain = run(EIGHT, ASYNC).traces["fedbuff"]
    assert list(plain) == list(trace_of(1))


def test_more_slots_than_flights_are_refused():
    message = r"buffer\.open_slots: open_slots=9 must not be above the 8 users in flight at most"
    with pytest.raises(ScenarioError, match=message):
        load(ASYNC, {**EIGHT, "buffer": {**EIGHT["buffer"], "open_slots": 9}})
