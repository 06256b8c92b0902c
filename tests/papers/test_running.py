"""A table's study, run cell by cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from papers.entry import Place
from papers.running import results, summaries
from simfl.config.yaml_tree import dump
from simfl.studies.sweep.plan import Cell
from simfl.studies.sweep.run import Sweep
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


def test_kept_cells_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A study of two cells, kept; of the second a file is lost."""
    path, place = study(tmp_path), Place(tmp_path, kept=tmp_path / "kept")
    first = [(point, result.summary["protocols"]) for point, result in summaries(path, place)]
    assert [point for point, _ in first] == [{"rounds": 1}, {"rounds": 2}]
    performed: list[int] = []
    perform = Sweep.perform

    def counted(sweep: Sweep, todo: dict[str, Cell], jobs: int) -> None:
        performed.append(len(todo))
        perform(sweep, todo, jobs)

    monkeypatch.setattr(Sweep, "perform", counted)
    assert [(point, result.summary["protocols"]) for point, result in summaries(path, place)] == first
    lost = next((tmp_path / "kept" / "study" / "cells").glob("*/summary.json"))
    lost.unlink()
    assert [(point, result.summary["protocols"]) for point, result in summaries(path, place)] == first
    assert performed == [0, 1]
