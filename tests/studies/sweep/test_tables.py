"""Means and intervals against a worked example and scipy, and the rows of a sweep against its summaries."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from simfl.studies.sweep.tables import (
    Row,
    columns,
    estimate,
    mean_columns,
    means,
    rows,
    selections,
    write_table,
)
from simfl.trace.rows import PHASES
from tests.studies.sweep.small import BASE, study, swept


def test_an_interval_worked_out_by_hand() -> None:
    """9, 10, 11, 14: mean 11, squares 4 + 1 + 0 + 9 = 14, s = sqrt(14/3); t of 3 degrees at 97.5 % is
    3.1824463 in printed tables; 3.1824463 sqrt(14/3) / 2 = 3.43744."""
    found = estimate([9.0, 10.0, 11.0, 14.0])
    assert (found.mean, found.n) == (11.0, 4)
    assert found.half == pytest.approx(3.43744, abs=5e-5)


def test_two_values_and_one() -> None:
    """t of 1 degree at 97.5 % is tan(0.475 pi) = 12.7062; s / sqrt(2) of 1 and 3 is 1."""
    assert estimate([1.0, 3.0]).half == pytest.approx(math.tan(0.475 * math.pi))
    assert estimate([4.0]).half is None
    assert estimate([4.0, 4.0, 4.0]).half == 0.0


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30).filter(lambda v: max(v) - min(v) > 1e-3))
def test_the_interval_is_scipys(values: list[float]) -> None:
    found = estimate(values)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=stats.tmean(values), scale=stats.sem(values))
    assert found.half is not None
    assert found.mean - found.half == pytest.approx(low, rel=1e-9, abs=1e-6)
    assert found.mean + found.half == pytest.approx(high, rel=1e-9, abs=1e-6)


@pytest.mark.ci
def test_every_value_of_every_cell_has_a_row(tmp_path: Path) -> None:
    sweep = swept(study(tmp_path, base={**BASE, "rounds": 3}), tmp_path / "out")
    listed = list(rows(sweep))
    by = {(row.point, row.seed, row.protocol, (row.measure, row.phase)): row.value for row in listed}
    assert len(by) == len(listed)
    for cell, _, summary in sweep.kept():
        for name, entry in summary.protocols.items():
            at = cell.point, cell.seed, name
            done = [r for r in entry.rounds if r.status == "completed"]
            assert by[*at, ("total_s", "")] == pytest.approx(sum(r.end_s - r.start_s for r in done) / 3)
            for phase in PHASES:
                spans = [r.span_s[phase] for r in done]
                assert by[*at, ("span_s", phase)] == pytest.approx(sum(spans) / 3)
            critical = [by[*at, ("critical_s", phase)] or 0.0 for phase in PHASES]
            assert sum(critical) == pytest.approx(by[*at, ("total_s", "")])
            assert by[*at, ("bytes_up", "")] == pytest.approx(sum(r.bytes_up for r in done) / 3)
            assert by[*at, ("completed", "")] == len(done) == 3
            assert by[*at, ("survivors", "")] == (6 if cell.point % 2 == 0 else 5)
            assert by[*at, ("users_lost", "")] == (0 if cell.point % 2 == 0 else 3)
            assert by[*at, ("exact", "")] is None  # nothing was executed
            assert entry.participation is not None
            assert by[*at, ("C", "")] == entry.participation.C[-1]


def test_means_are_over_the_seeds_that_have_a_value() -> None:
    def row(seed: int, value: float | None, point: int = 0) -> Row:
        return Row(point, seed, "c", "secagg", "accuracy", "", value)

    found = means([row(1, 0.5), row(2, None), row(3, 0.7), row(1, None, point=1)])
    both = found[0, "secagg"]["accuracy", ""]
    assert both is not None
    assert (both.mean, both.n) == (pytest.approx(0.6), 2)
    assert found[1, "secagg"]["accuracy", ""] is None


def read(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.ci
def test_files_have_a_column_for_each_key_that_varies(
    tmp_path: Path,
) -> None:
    cells = [{"dropout": "none"}, {"dropout.rate": 0.2, "privacy": {"T": 1, "D": 2}}]
    sweep = swept(study(tmp_path, cells=cells, grid={"rounds": [1, 2]}), tmp_path / "out")
    table = columns(sweep.plan, list(rows(sweep)))
    write_table(tmp_path / "sweep.csv", table)
    found = read(tmp_path / "sweep.csv")
    varied = ["dropout", "rounds", "dropout.rate", "privacy"]
    assert list(found[0]) == ["point", *varied, "seed", "cell", "protocol", "measure", "phase", "value"]
    first, last = found[0], found[-1]
    assert (first["dropout"], first["dropout.rate"], first["privacy"], first["rounds"]) == (
        "none",
        "",
        "",
        "1",
    )
    assert (last["dropout"], last["dropout.rate"], last["privacy"]) == ("", "0.2", '{"T": 1, "D": 2}')
    assert {line["value"] for line in found if line["measure"] == "exact"} == {""}
    values = {
        (line["cell"], line["protocol"], line["measure"], line["phase"]): line["value"] for line in found
    }
    for row in rows(sweep):
        if row.value is not None:
            assert float(values[row.cell, row.protocol, row.measure, row.phase]) == row.value
    write_table(tmp_path / "means.csv", mean_columns(sweep.plan, means(rows(sweep))))
    averaged = read(tmp_path / "means.csv")
    assert len(averaged) == len(found) // 2

    def totals(lines: list[dict[str, Any]], what: str) -> list[float]:
        wanted = {"measure": "total_s", "point": "3", "protocol": "fedavg"}
        return [float(line[what]) for line in lines if wanted.items() <= line.items()]

    one, other = totals(found, "value")
    assert totals(averaged, "mean") == [pytest.approx((one + other) / 2)]
    assert totals(averaged, "half_95") == [pytest.approx(12.7062 * abs(one - other) / 2, rel=1e-5)]
    assert totals(averaged, "seeds") == [2]
    assert {
        (line["seeds"], line["mean"], line["half_95"]) for line in averaged if line["measure"] == "exact"
    } == {("0", "", "")}


@pytest.mark.ci
def test_selections_are_printed_where_a_user_is_left_out(tmp_path: Path) -> None:
    everyone = swept(study(tmp_path), tmp_path / "out")
    assert not list(selections(everyone))
    part = {"selection": {"random": 5}, "privacy": {"T": 2, "D": 1}}
    some = swept(study(tmp_path, set=part, grid={"rounds": [1, 2, 3, 4]}), tmp_path / "out")
    found = dict(selections(some))
    assert list(found) == ["rounds=1", "rounds=2", "rounds=3"]
    assert {name: len(entries) for name, entries in found["rounds=2"].items()} == {
        "fedavg": 2,
        "lightsecagg": 2,
    }
