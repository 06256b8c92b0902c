"""Recorded links and speed tests: rates by brute force, and files that are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simfl.connect.importers import MAX_PROBLEMS
from simfl.connect.importers import mahimahi as importer
from simfl.connect.importers.mahimahi import mahimahi
from simfl.connect.importers.ookla import ookla
from simfl.errors import ScenarioError

Times = st.lists(st.integers(0, 120), min_size=1, max_size=40).map(sorted).filter(lambda times: times[-1] > 0)
PACKET_BYTES = 1504


def trace(folder: Path, name: str, times: list[int]) -> Path:
    path = folder / name
    path.write_text("".join(f"{ms}\n" for ms in times))
    return path


def leaving(times: list[int], begin_ms: int, end_ms: int) -> int:
    """The packets that mahimahi lets go from begin to end, as it begins its file again and again. Those at 0
    go just after it."""
    periods = range(0, end_ms, times[-1])
    return sum(begin_ms < of + max(ms, 0.5) <= end_ms for of in periods for ms in times)


# --- mahimahi ------------------------------------------------------------------------------------
@given(up=Times, down=Times, window_ms=st.integers(1, 150))
def test_rates_of_windows_are_those_of_packets(
    tmp_path_factory: pytest.TempPathFactory, up: list[int], down: list[int], window_ms: int
) -> None:
    folder = tmp_path_factory.mktemp("links")
    table = mahimahi([(trace(folder, "up", up), trace(folder, "down", down))], window_ms).tables["rates"]
    assert table.columns == ("user", "from_s", "up_mbps", "down_mbps", "period_s")
    period = max(up[-1], down[-1])
    edges = [*range(0, period, window_ms), period]
    assert len(table.rows) == len(edges) - 1
    sent = [0.0, 0.0]
    for (user, from_s, *rates, period_s), begin, end in zip(table.rows, edges, edges[1:], strict=False):
        assert (user, from_s, period_s) == (0, begin / 1000, period / 1000)
        for i, times in enumerate((up, down)):
            sent[i] += rates[i] * 1e6 / 8 * (end - begin) / 1000
            assert rates[i] == pytest.approx(
                leaving(times, begin, end) * PACKET_BYTES * 8 / (1000 * (end - begin)), rel=1e-12
            )
    for bytes_, times in zip(sent, (up, down), strict=True):
        whole = len(times) * (period // times[-1]) if period % times[-1] == 0 else leaving(times, 0, period)
        assert round(bytes_, 3) == whole * PACKET_BYTES


def test_each_pair_is_a_user_and_the_shorter_repeats(tmp_path: Path) -> None:
    one, two = trace(tmp_path, "one", [1]), trace(tmp_path, "two", [1000, 1000, 2000])
    of = mahimahi([(one, two), (two, two)], 1000)
    twelve, half = 12.032, 0.012032  # a packet a millisecond, a packet a second
    assert of.tables["rates"].rows == [
        (0, 0.0, twelve, 2 * half, 2.0),
        (0, 1.0, twelve, half, 2.0),
        (1, 0.0, 2 * half, 2 * half, 2.0),
        (1, 1.0, half, half, 2.0),
    ]
    repeated = "the shorter of two traces begins again until the other one ends: 1 user"
    assert of.found == f"4 windows of 2 users; dropped: nothing; {repeated}"


def test_too_many_windows_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = trace(tmp_path, "one", [1]), trace(tmp_path, "two", [3, 7])
    message = r"two:2: 7 ms in windows of 1 ms: more than 10 windows in all"
    monkeypatch.setattr(importer, "MAX_WINDOWS", 10)
    with pytest.raises(ScenarioError, match=message):
        mahimahi([(one, two), (two, one)], 1)
    assert len(mahimahi([(one, two), (two, one)], 2).tables["rates"].rows) == 8


def test_a_wrong_trace_is_named_by_its_line(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"down:2: 3 ms after 4 ms: the times must not fall"):
        mahimahi([(trace(tmp_path, "up", [1]), trace(tmp_path, "down", [4, 3]))], 1000)


# --- Ookla ---------------------------------------------------------------------------------------
HEADER = "Name,Tests,Avg. Avg U Kbps,Avg. Avg D Kbps,Avg Lat Ms\n"


def table(folder: Path, text: str) -> Path:
    path = folder / "fixed.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (HEADER, []),
        (HEADER + 'Peru,5,1000,2500.5,40\n"Korea, Republic of",9,1e3,20,3\n',
         [(0, "Peru", 1.0, 2.5005, 0.02), (1, "Korea, Republic of", 1.0, 0.02, 0.0015)]),
        ("quadkey,avg_d_kbps,avg_u_kbps,avg_lat_ms\r\n0231,2000,1000,10\r\n\r\n",
         [(0, "0231", 1.0, 2.0, 0.005)]),
        ("\ufeffAvg Lat Ms , Avg. Avg U Kbps,Avg. Avg D Kbps,NAME\n10,1000,2000,Per\u00fa",
         [(0, "Per\u00fa", 1.0, 2.0, 0.005)]),
    ],
)  # fmt: skip
def test_places_have_rates_and_half_the_round_trip(tmp_path: Path, text: str, rows: list[object]) -> None:
    of = ookla(table(tmp_path, text)).tables["capacity"]
    assert of.columns == ("entry", "name", "uplink_mbps", "downlink_mbps", "latency_s")
    assert of.rows == rows


def test_rows_without_a_number_are_dropped_and_counted(tmp_path: Path) -> None:
    text = HEADER + "A,1,,2,3\nB,1,1,0,3\nC,1,1000,2000,30\nD,1,1,2, \n"
    of = ookla(table(tmp_path, text))
    assert of.tables["capacity"].rows == [(0, "C", 1.0, 2.0, 0.015)]
    assert of.found == "entries: 1; dropped: 3 rows without all three numbers"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1: the column Avg. Avg U Kbps (or avg_u_kbps) is missing"),
        (HEADER.replace("Avg Lat Ms", "Lat"), ":1: the column Avg Lat Ms (or avg_lat_ms) is missing"),
        ("avg_u_kbps," + HEADER, ":1: the column Avg. Avg U Kbps (or avg_u_kbps) is doubled"),
        (HEADER + "A,1,2,3\n", ":2: 4 values, but the header names 5 columns"),
        (HEADER + "A,1,2,3,4\nA,1,x,3,4\n", ":3: Avg. Avg U Kbps: must be a number from 0 to 1e+09, not 'x'"),
        (HEADER + "A,1,2,-3,4\n", ":2: Avg. Avg D Kbps: must be a number from 0 to 1e+09, not '-3'"),
        (HEADER + "A,1,2,3,nan\n", ":2: Avg Lat Ms: must be a number from 0 to 1e+09, not 'nan'"),
        (HEADER + "A,1,2,3,inf\n", ":2: Avg Lat Ms: must be a number from 0 to 1e+09, not 'inf'"),
        (HEADER + "A,1,2,3,1e300\n", ":2: Avg Lat Ms: must be a number from 0 to 1e+09, not '1e300'"),
        (HEADER + 'A,1,"2" 2,3,4\n', ":2: not CSV: ',' expected after '\"'"),
        (HEADER + 'A,1,"2', ":2: not CSV: unexpected end of data"),
        (HEADER + "A" * 200_000 + "\n", ":2: not CSV: field larger than field limit (131072)"),
    ],
)
def test_a_wrong_table_is_named_by_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        ookla(table(tmp_path, text))
    assert [str(problem).removeprefix(f"{tmp_path}/fixed.csv") for problem in caught.value.problems] == [
        message
    ]


def test_only_the_first_wrong_rows_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as caught:
        ookla(table(tmp_path, HEADER + "A,1\n" * 100))
    assert len(caught.value.problems) == MAX_PROBLEMS
