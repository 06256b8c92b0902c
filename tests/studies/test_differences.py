"""The first rows in which two traces differ, of hand-made traces and of runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import simfl
from simfl.studies.comparison.differences import (
    LEAST_NS,
    Difference,
    first_differences,
    report,
)
from simfl.trace import rows
from simfl.trace.rows import SERVER, Row, Trace
from tests.live.test_cli import called
from tests.live.test_run_live import SMALL

MS = 1_000_000


def upload(user: int, at_ms: int, **more: Any) -> Row:
    arrives = rows.Sent(0, user, SERVER, "upload", "upload", "", 9, 9, -1, 0, at_ms * MS)
    return arrives._replace(**more)


def trace(*listed: Row) -> Trace:
    return Trace([rows.Begin(0, 0, (0, 1, 2)), *listed])


def aggregate(*members: int, at_ms: int) -> Row:
    return rows.Aggregated(0, tuple((user, "", 0) for user in members), -1, at_ms * MS)


def named(difference: Difference) -> Sequence[tuple[str, int | None, int | None]]:
    """The rows of a difference in milliseconds."""
    return [(text, *(at if at is None else at // MS for at in times)) for text, *times in difference.rows]


USERS_ARE_AS_EXPECTED = upload(0, 100), upload(1, 105), aggregate(0, 1, at_ms=106)


def test_equal_traces_have_no_difference() -> None:
    assert first_differences(trace(*USERS_ARE_AS_EXPECTED), trace(*USERS_ARE_AS_EXPECTED)) == []


def test_a_close_exchange_without_consequence_is_expected() -> None:
    """Users 0 and 1 are 5 ms apart, and exchanged; the aggregate has the same members in another order."""
    other = trace(upload(1, 100), upload(0, 105), aggregate(1, 0, at_ms=107))
    assert first_differences(trace(*USERS_ARE_AS_EXPECTED), other) == []


def test_another_member_is_a_difference_in_kind() -> None:
    """User 2 comes 2 ms before user 1 in the other trace, and is in the aggregate in its place."""
    one = trace(upload(0, 100), upload(1, 105), aggregate(0, 1, at_ms=106), upload(2, 107))
    other = trace(upload(0, 100), upload(2, 104), aggregate(0, 2, at_ms=105), upload(1, 106))
    (found,) = first_differences(one, other)
    assert (found.way, found.party, found.at_ns) == ("kind", SERVER, 105 * MS)
    assert named(found) == [
        ("message upload, round 0 of user 2", 107, 104),
        ("message upload, round 0 of user 1", 105, 106),
        ("result 0 2, round 0", None, 105),
    ]


def test_a_message_that_was_broken_off_did_not_arrive() -> None:
    one = trace(upload(0, 100), upload(1, 0, arrived=None, bytes=3))
    assert first_differences(one, trace(upload(0, 100))) == []
    (found,) = first_differences(one, trace(upload(0, 100), upload(1, 105)))
    assert found.way == "kind"
    assert named(found) == [
        ("message upload, round 0 of user 0", 100, 100),
        ("message upload, round 0 of user 1", None, 105),
    ]


def test_a_wide_exchange_is_a_difference_in_order() -> None:
    """User 1 is 100 ms behind user 0, and in the other trace 100 ms before it."""
    one, other = trace(upload(0, 400), upload(1, 500)), trace(upload(1, 400), upload(0, 500))
    ways = {found.way: found for found in first_differences(one, other)}
    assert set(ways) == {"order", "time"}
    assert named(ways["order"]) == [
        ("begin 0 1 2, round 0", 0, 0),
        ("message upload, round 0 of user 0", 400, 500),
        ("message upload, round 0 of user 1", 500, 400),
    ]


def test_parties_are_compared_one_by_one() -> None:
    """Users 0 and 1 receive the model at times that are exchanged, and neither waits for the other."""
    one = trace(upload(SERVER, 100, to=0), upload(SERVER, 119, to=1))
    other = trace(upload(SERVER, 119, to=0), upload(SERVER, 100, to=1))
    assert first_differences(one, other) == []


@pytest.mark.parametrize("more_ms", [21, 23])
def test_a_time_beyond_the_expected_is_a_difference(more_ms: int) -> None:
    """At 100 ms a row may be 2 + 20 ms late."""
    found = first_differences(trace(upload(0, 100)), trace(upload(0, 100 + more_ms)))
    assert [one.way for one in found] == ["time"] * (more_ms > 22)
    assert LEAST_NS == 20 * MS


def test_the_first_of_each_way_is_given_in_order_of_time() -> None:
    one = trace(upload(0, 100), upload(0, 500, kind="answer"), upload(1, 900), upload(2, 950))
    other = trace(upload(0, 200), upload(1, 900), upload(1, 960, kind="answer"), upload(2, 2000))
    found = first_differences(one, other)
    assert [(one.way, one.at_ns // MS) for one in found] == [("time", 100), ("kind", 500)]


ARRIVALS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 2000)), max_size=8)


@given(ARRIVALS, st.floats(0, 0.019))
def test_rows_that_are_late_as_expected_do_not_differ(arrivals: list[tuple[int, int]], late: float) -> None:
    """Uploads of four users at any times, and each of them late by up to 1.9 % of its time."""
    listed = sorted(arrivals, key=lambda arrival: arrival[1])
    one = trace(*(upload(user, at_ms) for user, at_ms in listed))
    other = trace(*(upload(user, int(at_ms * (1 + late))) for user, at_ms in listed))
    assert first_differences(one, other) == first_differences(one, one) == []


def test_a_report_names_rows_and_runs() -> None:
    found = first_differences(trace(upload(0, 100)), trace(upload(0, 300)))
    made = report(["real", "simulated"], {"fedavg": found, "secagg": []})
    assert made.on("title") == ["First rows that differ; A is real, B is simulated"]
    assert made.on("entry") == ["fedavg", "secagg: the same rows in the same order, at the expected times"]
    assert "in time, at the server" in made.on("text")


# --- runs
QUICK: dict[str, Any] = {"rounds": 2, "payload": "shadow", "protocols": ["fedavg", "secagg"]}


def test_two_runs_part_where_users_are_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second run loses a third of the users; no line of the output is longer than 80 columns."""
    folders = [str(tmp_path / name) for name in ("a", "b")]
    for folder, rate in zip(folders, (0.0, 0.3), strict=True):
        simfl.run("scenarios/tutorial.yaml", QUICK | {"dropout.rate": rate}, folder)
    assert called("compare", *folders, "--first-difference") == 0
    out = capsys.readouterr().out
    assert "in kind, at user " in out
    assert "lost round 0, upload" in out
    assert max(map(len, out.splitlines())) <= 80
    assert called("compare", *folders, "--first-difference", "--format", "json") == 0
    content = json.loads(capsys.readouterr().out)
    assert content["b"] == "b (virtual time)"
    assert list(content["entries"]) == ["fedavg", "secagg"]
    # The row that differs has a time in one run alone.
    kinds = [one for one in content["entries"]["fedavg"] if one["way"] == "kind"]
    assert any(None in times for _, *times in kinds[0]["rows"])


@pytest.mark.ci
def test_a_live_run_has_the_rows_of_its_simulation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = {**SMALL, "protocols": ["fedavg"]}
    from simfl.live.live_protocol import prepared
    from simfl.live.run_live import run_live
    from simfl.scenario.load import load

    run_live(prepared(load(study)), tmp_path / "real", processes=2)
    simfl.run(study, out=tmp_path / "simulated")
    assert called("compare", str(tmp_path / "real"), str(tmp_path / "simulated"), "--first-difference") == 0
    out = capsys.readouterr().out
    assert "A is real (real time)" in out
    assert "in kind" not in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a",), "--first-difference: needs two runs, not 1"),
        (("a", "b", "c"), "--first-difference: needs two runs, not 3"),
        (("a", "b", "--out", "page.html"), "--first-difference: must go without --out page.html"),
    ],
)
def test_other_arguments_are_refused(
    arguments: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert called("compare", *arguments, "--first-difference") == 2
    assert said.partition(": ")[2] in capsys.readouterr().err


def test_a_sweep_has_no_trace_to_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = {"base": {**SMALL, "payload": "shadow"}, "seeds": [1]}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    folders = [str(tmp_path / name) for name in ("a", "b")]
    assert called("sweep", str(tmp_path / "study.yaml"), "--out", folders[0]) == 0
    shutil.copytree(*folders)
    capsys.readouterr()
    assert called("compare", *folders, "--first-difference") == 2
    assert "a holds a sweep, which has no trace: name runs" in capsys.readouterr().err
