"""Traces of recorded links: a file's times, its mistakes, and packets counted by brute force."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simfl.errors import ScenarioError
from simfl.world import mahimahi
from simfl.world.mahimahi import delivered, deliveries, packets

Times = st.lists(st.integers(0, 300), min_size=1, max_size=60).map(sorted).filter(lambda times: times[-1] > 0)


def read(folder: Path, text: str | bytes) -> list[int]:
    (folder / "a.up").write_bytes(text.encode() if isinstance(text, str) else text)
    return list(map(int, deliveries(folder / "a.up")))


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("7", [7]),
        ("0\n0\n1\n", [0, 0, 1]),
        ("5\r\n5\r\n", [5, 5]),
        ("\ufeff007\n8\n", [7, 8]),
        ("9999999999\n", [9_999_999_999]),
    ],
)
def test_a_trace_lists_milliseconds(tmp_path: Path, text: str, times: list[int]) -> None:
    assert read(tmp_path, text) == times


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", ":1", "must be a whole number of milliseconds, at most 9999999999, not ''"),
        ("\n", ":1", "not ''"),
        ("1\n\n2\n", ":2", "not ''"),
        ("1\n2\n\n", ":3", "not ''"),
        ("1\n-2\n", ":2", "not '-2'"),
        ("1\n2.0\n", ":2", "not '2.0'"),
        ("1\n2 \n", ":2", "not '2 '"),
        ("1\n10000000000\n", ":2", "at most 9999999999, not '10000000000'"),
        ("1\n\u0662\n", ":2", "must be a whole number"),
        ("1\r2\n", ":1", "not '1\\\\r2'"),
        ("0\n0\n", ":2", "the last number is the period in ms, which must be above 0"),
        ("1\n3\n2\n", ":3", "2 ms after 3 ms: the times must not fall"),
        (b"1\n\xff\n", ":2", "not UTF-8 text"),
    ],
)
def test_one_error_names_the_line(tmp_path: Path, text: str | bytes, place: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=f"a.up{place}: .*{message}") as caught:
        read(tmp_path, text)
    assert len(caught.value.problems) == 1


def test_the_key_of_a_scenario_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"absent: network.users.varies.up: cannot be read: No such file"):
        deliveries(tmp_path / "absent", "network.users.varies.up")


def test_a_folder_and_a_huge_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ScenarioError, match="cannot be read: Is a directory"):
        deliveries(tmp_path)
    monkeypatch.setattr(mahimahi, "MAX_BYTES", 4)
    with pytest.raises(ScenarioError, match=r"a\.up: has more than 4 bytes, too many to be read"):
        read(tmp_path, "1\n22\n")


@given(Times, st.integers(1, 400))
def test_every_packet_counts_in_its_window(times: list[int], window_ms: int) -> None:
    ends, counts = packets(np.array(times), window_ms)
    begins = [0, *ends[:-1]]
    assert list(ends) == [*range(window_ms, times[-1], window_ms), times[-1]]
    for begin, end, count in zip(begins, ends, counts, strict=True):
        assert count == sum(begin < max(ms, 1) <= end for ms in times)
    assert counts.sum() == len(times)


@given(Times, st.integers(0, 1000))
def test_a_trace_begins_again(times: list[int], until_ms: int) -> None:
    begins = range(0, until_ms, times[-1])
    left = sum(begin + max(ms, 1) <= until_ms for begin in begins for ms in times)
    assert delivered(np.array(times), np.array([until_ms])) == [left]
