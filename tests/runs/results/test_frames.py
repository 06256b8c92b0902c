"""A result as data frames: the columns and values of the run's files."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

from simfl.errors import BadInput
from simfl.runs.folder.result import Result
from simfl.trace.rows import ROWS
from tests.engine.harness import SIX, run, script

pandas = pytest.importorskip("pandas", reason="simfl[pandas] is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("frames")


@pytest.fixture(scope="module")
def result(folder: Path) -> Result:
    """A completed, a poorer and an aborted round."""
    lost = script((0, 1, "upload", "mid_send"), *((u, 2, "shares", "before_send") for u in range(4)))
    return run({**SIX, "rounds": 3, "dropout": lost}, out=folder)


@pytest.mark.ci
def test_rounds_are_those_of_the_summary(result: Result) -> None:
    table = result.to_pandas("rounds")
    entries = [(name, r) for name, p in result.summary["protocols"].items() for r in p["rounds"]]
    assert len(table) == len(entries) == 9
    for (_, row), (name, r) in zip(table.iterrows(), entries, strict=True):
        assert (row.protocol, row["round"], row.status) == (name, r["index"], r["status"])
        assert row.span_s_offline == r["span_s"]["offline"]
        assert row.dropped_upload == r["dropped"]["upload"]
        assert row.ignored == sum(r["ignored"].values())
        assert row.total_s == r["end_s"] - r["start_s"]
        exact = r["aggregate_exact"]
        assert row.aggregate_exact is pandas.NA if exact is None else row.aggregate_exact == exact
    assert list(table[table.status == "aborted"]["reason"].unique()) != []
    assert table.reason.isna().sum() == (table.status == "completed").sum()
    types = {name: str(table.dtypes[name]) for name in ("round", "bytes_up", "total_s", "aggregate_exact")}
    assert types == {
        "round": "int64",
        "bytes_up": "int64",
        "total_s": "float64",
        "aggregate_exact": "boolean",
    }


def test_the_breakdown_is_that_of_the_file(result: Result, folder: Path) -> None:
    table = result.to_pandas("breakdown")
    with (folder / "breakdown.csv").open(newline="") as file:
        names, *rows = csv.reader(file)
    assert list(table.columns) == names
    assert str(table.dtypes["seconds"]) == "float64"
    shown = table.assign(seconds=[f"{s:.9f}" for s in table.seconds]).astype(object)
    assert shown.where(table.notna(), "").astype(str).to_numpy().tolist() == rows


def test_summary_has_a_row_for_each_protocol(result: Result) -> None:
    """Its means are those of `summary.json`, and its phases add up to the seconds per aggregate."""
    table = result.to_pandas("summary").set_index("protocol")
    assert list(table.index) == list(result.protocols)
    for name, protocol in result.protocols.items():
        assert table.rounds[name] == len(protocol.rounds)
        assert table.aggregates[name] == len(protocol.completed)
        assert table.per_aggregate_s[name] == protocol.mean.per_aggregate_s
        assert table.span_s_offline[name] == protocol.mean.span_s.offline
        critical = table.loc[name].filter(like="critical_s_").sum()
        assert critical == pytest.approx(protocol.mean.per_aggregate_s)


def test_the_trace_is_that_of_the_file(result: Result, folder: Path) -> None:
    table = result.to_pandas("trace")
    lines = [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["row"] != "protocol"]
    assert len(table) == len(lines)
    assert set(table.columns) == {
        "protocol",
        "number",
        "row",
        *(f for kind in ROWS.values() for f in kind._fields),
    }
    for row, line in zip(table.to_dict("records"), lines, strict=True):
        there = {key: value for key, value in row.items() if key in line}
        assert json.loads(json.dumps(there, default=lambda _: None)) == line
        assert all(pandas.isna(row[key]) for key in row.keys() - line.keys() - {"protocol", "number"})
    assert (table.groupby("protocol").cumcount() == table.number).all()


def test_whole_numbers_stay_whole_where_some_are_missing() -> None:
    from simfl.runs.results.frames import frame

    large = 2**60 + 1  # a float would round it
    column = frame({"at": [large, None]})["at"]
    assert column[0] == large
    assert column.isna().tolist() == [False, True]


def test_without_pandas_the_extra_is_named(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(BadInput, match=r"to_pandas needs pandas: pip install 'simfl\[pandas\]'"):
        result.to_pandas()


def test_an_unknown_table_is_refused(result: Result) -> None:
    with pytest.raises(BadInput, match="table must be one of rounds, summary, breakdown, trace, not 'users'"):
        result.to_pandas("users")  # type: ignore[arg-type]
