"""Files of rates: against a plain reading of their lines, and each mistake with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.config import csv_files
from simfl.errors import ScenarioError
from simfl.world.rate_steps import Step, read_steps
from simfl.world.timelines import FOR_EVER
from tests.sizes import examples

NS = 10**9
Lines = dict[int, list[tuple[int, float, float]]]  # user -> (from_s, up, down) in order of time

LINES = st.dictionaries(
    st.integers(0, 9),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=5,
             unique_by=lambda line: line[0]).map(sorted),
    min_size=1, max_size=4,
)  # fmt: skip


def write(folder: Path, text: str) -> str:
    path = folder / "rates.csv"
    path.write_text(text)
    return str(path)


def plain(lines: list[tuple[int, float, float]], period_s: int, now_s: int) -> tuple[Step | None, int]:
    """The step of one entry, and until when it holds, by going through its lines."""
    turn = now_s % period_s if period_s else now_s
    begun = [line for line in lines if line[0] <= turn]
    later = [line[0] for line in lines if line[0] > turn]
    after = now_s - turn + (min(later) if later else period_s) if later or period_s else None
    step = (begun[-1][1], begun[-1][2], None) if begun else None
    return step, FOR_EVER if after is None else after * NS


@settings(max_examples=examples(200), deadline=None)
@given(LINES, st.sampled_from([0, 31, 40]), st.randoms(), st.lists(st.integers(0, 130), min_size=1))
def test_steps_are_those_of_their_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: Lines, period_s: int, order: object, asked: list[int]
) -> None:
    rows = [f"{up},{user},{down},{at},{period_s}" for user in lines for at, up, down in lines[user]]
    order.shuffle(rows)  # type: ignore[attr-defined]
    folder = tmp_path_factory.mktemp("rates")
    steps = read_steps(write(folder, "\n".join(["up_mbps,user,down_mbps,from_s,period_s", *rows])))
    assert len(steps) == len(lines)
    for entry, user in enumerate(sorted(lines)):
        for now_s in asked:
            assert steps.at(entry, now_s * NS) == plain(lines[user], period_s, now_s)


def test_a_file_without_users_has_one_entry(tmp_path: Path) -> None:
    steps = read_steps(write(tmp_path, "from_s,up_mbps,down_mbps,latency_s\n2,1,4,.5\n5,0,8,1e-3\n"))
    assert len(steps) == 1
    assert [steps.at(0, now * NS) for now in (0, 2, 5)] == [
        (None, 2 * NS),
        ((1.0, 4.0, 0.5), 5 * NS),
        ((0.0, 8.0, 0.001), FOR_EVER),
    ]


def test_plain_numbers_are_read_by_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "CHUNK_LINES", 2)
    monkeypatch.setattr("simfl.world.csv_series.by_lines", None)
    steps = read_steps(write(tmp_path, "user,from_s,up_mbps,down_mbps\n" + "1,0,1,2\n3,0,3,4\n3,7,5,6\n"))
    assert [steps.at(entry, 8 * NS)[0] for entry in (0, 1)] == [(1.0, 2.0, None), (5.0, 6.0, None)]


HEAD = "user,from_s,up_mbps,down_mbps,period_s\n"
MISTAKES = [
    ("", ":1: the column from_s is missing: the header needs from_s,up_mbps,down_mbps"),
    (HEAD, ": no step below the header"),
    (HEAD + "0,0,1,1,0\n0,-1,1,1,0", ":3: from_s: must be at least 0, not -1"),
    (HEAD + "0,0,1,1,0\n0,1,nan,1,0", ":3: up_mbps: must be a finite number, not nan"),
    (HEAD + "0,0,1,2e8,0", ":2: down_mbps: must be at most 1e+08, not 2e8"),
    (HEAD + "0,0,1,fast,0", ":2: down_mbps: must be a number, not 'fast'"),
    (HEAD + "0.5,0,1,1,0", ":2: user: must be a whole number, not 0.5"),
    (HEAD + "0,0,1,1", ":2: 4 values, but the header names 5 columns"),
    (HEAD + "0,9,1,1,9", ":2: period_s: must be above from_s=9, or 0, not 9"),
    (HEAD + "0,0,1,1,9\n1,0,1,1,8\n0,1,1,1,8", ":4: period_s: must be 9, as in line 2 for user 0"),
    (HEAD + "0,1,1,1,0\n0,1,2,2,0", ":3: from_s: user 0 has rates from 1 on already, by line 2"),
    ("from_s,up_mbps,down_mbps\n1,1,1\n1,1,1",
     ":3: from_s: every user has rates from 1 on already, by line 2"),
    (HEAD + "0,1,1,1,0\n1,1,1,1,0\n0,1,2,2,0\n0,1,3,3,0",
     ":4: from_s: user 0 has rates from 1 on already, by line 2\n"
     "FILE:5: from_s: user 0 has rates from 1 on already, by line 2"),
    ('"', ":1: not CSV: unexpected end of data"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_steps_name_a_mistake_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(ScenarioError) as problem:
        read_steps(file)
    assert str(problem.value) == f"{file}{message.replace('FILE', file)}"


def test_steps_name_a_missing_file_with_its_key(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"none\.csv: network\.users\.varies\.file: cannot be read"):
        read_steps(str(tmp_path / "none.csv"), "network.users.varies.file")
