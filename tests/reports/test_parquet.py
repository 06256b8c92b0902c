"""Tables as Parquet: what is read back is what was written."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from simfl.cli import main
from simfl.config.yaml_tree import dump
from simfl.reports.tables import write_parquet
from tests.studies.sweep.small import BASE

parquet = pytest.importorskip("pyarrow.parquet", reason="simfl[parquet] is not installed")


def test_numbers_stay_numbers_and_other_values_are_text(tmp_path: Path) -> None:
    columns = {
        "whole": [1, None, 3],
        "real": [1, 2.5, None],
        "text": ["a", None, "c"],
        "mixed": [1, "a", {"T": 2}],
        "truth": [True, False, None],
    }
    write_parquet(tmp_path / "t.parquet", columns)
    table = parquet.read_table(tmp_path / "t.parquet")
    assert list(map(str, table.schema.types)) == ["int64", "double", "string", "string", "string"]
    assert table.to_pydict() == {
        **columns,
        "mixed": ["1", "a", '{"T": 2}'],
        "truth": ["true", "false", None],
    }


def test_a_runs_breakdown_has_the_values_of_its_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s.yaml").write_text(dump(BASE))
    command = ["run", str(tmp_path / "s.yaml"), "--parquet", "--out"]
    with pytest.raises(SystemExit) as left:
        main([*command, str(tmp_path / "run")])
    assert left.value.code == 0
    found = parquet.read_table(tmp_path / "run" / "breakdown.parquet").to_pylist()
    with (tmp_path / "run" / "breakdown.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [
        {name: "" if value is None else str(value) for name, value in row.items() if name != "seconds"}
        for row in found
    ] == [{name: value for name, value in line.items() if name != "seconds"} for line in lines]
    assert [row["seconds"] for row in found] == [float(line["seconds"]) for line in lines]
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(SystemExit) as left:
        main([*command, str(tmp_path / "other")])
    assert left.value.code == 2
    assert not (tmp_path / "other").exists()
