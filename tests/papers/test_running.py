"""A table's study, run cell by cell."""

from __future__ import annotations

from pathlib import Path

from papers.running import results
from simfl.config.yaml_tree import dump
from tests.engine.harness import SYNC


def study(folder: Path) -> Path:
    path = folder / "study.yaml"
    base = {**SYNC, "name": "small", "protocols": ["fedavg"]}
    path.write_text(dump({"base": base, "cells": [{"rounds": 1}, {"rounds": 2}]}), encoding="utf-8")
    return path


def test_cells_run_on_the_bundled_digits_by_default(tmp_path: Path) -> None:
    ran = list(results(study(tmp_path)))
    assert [point for point, _ in ran] == [{"rounds": 1}, {"rounds": 2}]
    assert [len(result.rounds["fedavg"]) for _, result in ran] == [1, 2]
    assert {result.scenario.learning.dataset.kind for _, result in ran} == {"digits"}
