"""A study on the paper's own data, where a folder of theirs is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from papers.running import Data, found, results
from simfl.scenario.yaml_tree import dump
from tests.engine.harness import SYNC
from tests.learning.data.common import idx_images, idx_labels, pixels

NAMES = [f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
MNIST = Data("mnist", {"learning.batch_size": 2})


def study(folder: Path) -> Path:
    path = folder / "study.yaml"
    base = {**SYNC, "name": "small", "protocols": ["fedavg"]}
    path.write_text(dump({"base": base, "cells": [{"rounds": 1}, {"rounds": 2}]}), encoding="utf-8")
    return path


def test_nothing_is_found_without_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIMFL_DATA", raising=False)
    assert found([MNIST]) is None
    monkeypatch.setenv("SIMFL_DATA", str(tmp_path))
    assert found([MNIST]) is None
    (tmp_path / "mnist").mkdir()
    assert found([Data("cifar10"), MNIST]) is MNIST


def test_cells_run_on_the_bundled_digits_by_default(tmp_path: Path) -> None:
    ran = list(results(study(tmp_path)))
    assert [point for point, _ in ran] == [{"rounds": 1}, {"rounds": 2}]
    assert [len(result.rounds["fedavg"]) for _, result in ran] == [1, 2]
    assert {result.scenario.learning.dataset.kind for _, result in ran} == {"digits"}


def test_cells_run_on_data_of_a_local_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mnist").mkdir()
    images, labels = pixels(9, 28, 28), [0, 1, 2, 3, 4, 5, 6, 7, 8]
    written = (idx_images(images), idx_labels(labels), idx_images(images[:3]), idx_labels(labels[:3]))
    for name, content in zip(NAMES, written, strict=True):
        (tmp_path / "mnist" / name).write_bytes(content)
    monkeypatch.setenv("SIMFL_DATA", str(tmp_path))
    _, (_, result) = results(study(tmp_path), found([MNIST]))
    assert result.scenario.learning.dataset.kind == "mnist"
    assert result.scenario.learning.batch_size == 2
    accuracy = result.summary["protocols"]["fedavg"]["final_accuracy"]
    assert round(3 * accuracy) == pytest.approx(3 * accuracy)
    assert MNIST.told == "mnist from a local folder, with learning.batch_size 2"
