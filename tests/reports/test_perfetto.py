"""`trace.perfetto.json` against the published format, and against the trace it was made from.

The trace processor of the `perfetto` package is a program that it fetches from the network, so these checks
are written from the document instead ("Trace Event Format": required fields of each phase of an event,
nesting of complete events, pairs of asynchronous and of flow events, metadata, counters).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import pytest

from simfl.errors import BadInput
from simfl.reports import perfetto
from simfl.reports.folder import Run
from simfl.trace.rows import Aggregated, Sent, Step, Trace
from simfl.world.availability import Always
from tests.engine.test_battery import battery
from tests.engine.test_energy import ENERGY

REQUIRED = {
    "X": {"name", "cat", "pid", "tid", "ts", "dur"},
    "b": {"name", "cat", "pid", "id", "ts"},
    "e": {"name", "cat", "pid", "id", "ts"},
    "s": {"name", "cat", "pid", "tid", "id", "ts"},
    "f": {"name", "cat", "pid", "tid", "id", "ts", "bp"},
    "i": {"name", "pid", "tid", "ts", "s"},
    "C": {"name", "pid", "ts", "args"},
    "M": {"name", "pid", "args"},
}


def document(run: Run, asked: tuple[int, int] | None = None, limit: int = 10**6) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads("".join(perfetto.lines(run, perfetto.choose(run, asked, limit))))
    return loaded


def ns(us: float) -> int:
    """As a viewer reads it: what is left over is cut off."""
    return int(us * 1000)


@pytest.fixture(scope="module", params=["losing", "buffered"])
def run(request: pytest.FixtureRequest) -> Run:
    found: Run = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def whole(run: Run) -> dict[str, Any]:
    """The document of all rounds of a run."""
    return document(run)


def of(events: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] in kinds]


@pytest.mark.ci(but=["losing"])
def test_events_have_the_fields_of_the_format(whole: dict[str, Any]) -> None:
    found = whole
    assert set(found) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert found["displayTimeUnit"] in ("ms", "ns")
    for event in found["traceEvents"]:
        assert REQUIRED[event["ph"]] <= set(event), event
        assert isinstance(event["pid"], int)
        assert isinstance(event.get("tid", 0), int)
        assert all(event.get(key, 0) >= 0 for key in ("ts", "dur"))
        if event["ph"] == "i":
            assert event["s"] in ("g", "p", "t")
        if event["ph"] in "besf":
            assert int(event["id"], 16) >= 0


def test_every_track_has_a_name_of_its_own(run: Run, whole: dict[str, Any]) -> None:
    events = whole["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in of(events, "M") if e["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in of(events, "M") if e["name"] == "thread_name"}
    assert len(set(processes.values())) == len(processes)
    assert {e["pid"] for e in events} <= set(processes)
    assert {(e["pid"], e["tid"]) for e in of(events, "X")} == set(threads)
    for pid in processes:
        names = [name for (of_pid, _), name in threads.items() if of_pid == pid]
        assert len(set(names)) == len(names)
    for protocol in run.traces:
        for who in ("server", "link: server to users", "link: users to server", "user 0"):
            assert f"{protocol}: {who}" in processes.values()


def test_slices_of_a_track_never_overlap(whole: dict[str, Any]) -> None:
    tracks = defaultdict(list)
    for event in of(whole["traceEvents"], "X"):
        tracks[event["pid"], event["tid"]].append((ns(event["ts"]), ns(event["dur"])))
    for slices in tracks.values():
        slices.sort()
        for (at, length), (following, _) in pairwise(slices):
            assert at + length <= following


def test_slices_and_messages_are_the_traces_to_the_nanosecond(run: Run, whole: dict[str, Any]) -> None:
    events = whole["traceEvents"]
    rows = [row for trace in run.traces.values() for row in trace]
    slices = Counter((ns(e["ts"]), ns(e["dur"]), e["cat"]) for e in of(events, "X"))
    expected: Counter[tuple[int, int, str]] = Counter()
    for row in rows:
        at = row.start if isinstance(row, Step) else 0
        for phase, length in row.segments if isinstance(row, Step) else ():
            expected[at, length, phase] += 1
            at += length
    assert slices == expected
    begins, ends = ({e["id"]: ns(e["ts"]) for e in of(events, ph)} for ph in "be")
    assert begins.keys() == ends.keys()
    assert len(begins) == len(of(events, "b")) == len(of(events, "e"))
    arrived = Counter((r.sent, r.arrived) for r in rows if isinstance(r, Sent) and r.arrived is not None)
    assert Counter((begins[k], ends[k]) for k in begins) == arrived


def test_arrows_lead_from_the_sending_step_to_the_receiving(run: Run, whole: dict[str, Any]) -> None:
    events = whole["traceEvents"]
    slices = defaultdict(list)
    for e in of(events, "X"):
        slices[e["pid"], e["tid"]].append((ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])))
    starts, ends = ({e["id"]: e for e in of(events, ph)} for ph in "sf")
    assert starts.keys() == ends.keys()
    received = sum(
        isinstance(row, Step) and row.call == "receive" for trace in run.traces.values() for row in trace
    )
    assert 0 < len(starts) <= received
    assert len(starts) > received * 0.9  # the others are sent by what is no step, as by a returned link
    for key, start in starts.items():
        end = ends[key]
        assert start["ts"] <= end["ts"]
        assert start["pid"] != end["pid"]
        assert end["bp"] == "e"
        for event in (start, end):
            at = ns(event["ts"])
            assert any(a <= at <= b for a, b in slices[event["pid"], event["tid"]])


def test_counters_have_units_and_go_forward(run: Run, whole: dict[str, Any]) -> None:
    events = of(whole["traceEvents"], "C")
    by_name = defaultdict(list)
    for event in events:
        ((_, value),) = event["args"].items()
        assert isinstance(value, int)
        assert value >= 0
        by_name[event["pid"], event["name"]].append((event["ts"], value))
    for values in by_name.values():
        assert [at for at, _ in values] == sorted({at for at, _ in values})
    expected = {"load: messages under way", "users online", "global model version"}
    assert {name for _, name in by_name} == expected | ({"buffer fill"} if run.buffered else set())
    done = [sum(isinstance(row, Aggregated) for row in trace) for trace in run.traces.values()]
    last = [values[-1][1] for (_, name), values in by_name.items() if name == "global model version"]
    assert last == done


def test_idle_users_in_an_outage_are_not_counted(buffered: Run) -> None:
    gone = {"of": "all", "from_s": 1.0, "to_s": 2.0, "offline": True}
    network, population = buffered.scenario.network, buffered.scenario.population
    update = {
        "network": network.model_validate({**network.model_dump(), "outages": [gone]}),
        "population": population.model_copy(update={"availability": Always()}),
    }
    run = Run(**{**vars(buffered), "scenario": buffered.scenario.model_copy(update=update)})
    assert not perfetto.has_all_presence(run, "fedbuff")
    del update["network"]
    run = Run(**{**vars(buffered), "scenario": buffered.scenario.model_copy(update=update)})
    assert perfetto.has_all_presence(run, "fedbuff")


@pytest.mark.parametrize(
    ("of_class", "known"),
    [
        ({"availability": "always"}, True),
        ({"availability": {"bernoulli": 0.5}}, False),
        ({"energy": ENERGY}, True),
        ({"energy": battery()}, False),
    ],
)
def test_online_users_are_counted_if_each_class_has_all_changes(
    losing: Run, of_class: dict[str, Any], known: bool
) -> None:
    population = losing.scenario.population
    classes = {"a": {"share": 0.5, **of_class}, "b": {"share": 0.5}}
    changed = population.model_validate({**population.model_dump(), "classes": classes})
    run = Run(**{**vars(losing), "scenario": losing.scenario.model_copy(update={"population": changed})})
    assert perfetto.has_all_presence(run, "secagg") == known


def test_idle_users_without_rows_are_not_counted(buffered: Run) -> None:
    events = document(buffered)["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in of(events, "M") if e["name"] == "process_name"}
    counted = {names[e["pid"]] for e in events if e["name"] == "users online"}
    assert counted == {"lightsecagg_async: server"}


def test_losses_refusals_and_aborts_are_there(losing: Run) -> None:
    names = Counter(e["name"] for e in of(document(losing)["traceEvents"], "i"))
    assert any(name.startswith("lost: ") for name in names)
    assert any(name.startswith("round 2 aborted: ") for name in names)
    assert any(name.endswith("aborted") for name in names)
    aggregates = sum(count for name, count in names.items() if name.startswith("aggregate "))
    assert aggregates == sum(isinstance(r, Aggregated) for t in losing.traces.values() for r in t)


def test_only_the_rounds_that_are_asked_for(losing: Run) -> None:
    found = document(losing, (1, 1))
    assert {e["args"]["round"] for e in of(found["traceEvents"], "X", "b", "i")} == {1}
    assert found["otherData"]["left_out"] == [f"{name}: rounds 1 to 1 of 0 to 2" for name in losing.traces]
    with pytest.raises(BadInput, match="--rounds 0:7: must be A:B with 0 <= A <= B <= 2"):
        perfetto.choose(losing, (0, 7))


def test_beyond_the_limit_whole_rounds_are_left_out_and_named(losing: Run) -> None:
    sizes = {name: len(trace) for name, trace in losing.traces.items()}
    whole = perfetto.choose(losing)
    assert not perfetto.left_out(losing, whole)
    limit = sum(sizes.values()) - 1
    chosen = perfetto.choose(losing, limit=limit)
    assert sum(len(c.numbers) for c in chosen.values()) <= limit
    assert chosen["fedavg"] == whole["fedavg"]  # it is small, and leaves its part to the others
    (line,) = perfetto.left_out(losing, chosen)
    assert line == f"{max(sizes, key=sizes.__getitem__)}: rounds 0 to 1 of 0 to 2"
    found = document(losing, limit=limit)
    assert line in found["otherData"]["left_out"]
    assert all(len(c.numbers) > 0 for c in perfetto.choose(losing, limit=1).values())


def test_the_same_run_gives_the_same_bytes(run: Run) -> None:
    first, second = ("".join(perfetto.lines(run, perfetto.choose(run))) for _ in range(2))
    assert first == second


def test_microseconds_turn_back_into_nanoseconds() -> None:
    for value in (0, 1, 29, 999, 1_001, 4_035, 10**9 + 1, 3_371_234_567_891, 10**15 + 7):
        assert int(perfetto._us(value) * 1000) == value


def test_a_run_without_rows_is_an_empty_document(losing: Run) -> None:
    empty = Run(**{**vars(losing), "traces": {"fedavg": Trace()}, "rounds": {"fedavg": []}})
    events = document(empty)["traceEvents"]
    assert {e["ph"] for e in events} <= {"M", "C"}
