"""Facts of a model: as its module has them, computed once, and then without torch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simfl.learning.models import MODELS
from simfl.learning.models.facts import Facts, facts
from tests.learning.models.made import made


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIMFL_CACHE", str(tmp_path))
    return tmp_path / "models.json"


@pytest.mark.parametrize(
    ("name", "shape", "classes", "expected"),
    [  # LeNet-5 on CIFAR-10: 62,006 parameters; its multiply-adds worked out layer by layer
        ("logistic", (1, 8, 8), 10, Facts(650, True, 640)),
        ("softmax", (1, 112, 92), 40, Facts(10304 * 40 + 40, True, 10304 * 40)),
        (
            "lenet5", (3, 32, 32), 10,
            Facts(62006, False, 28 * 28 * 6 * 75 + 10 * 10 * 16 * 150 + 400 * 120 + 120 * 84 + 84 * 10),
        ),
    ],
)  # fmt: skip
def test_they_are_those_of_the_module(
    name: str, shape: tuple[int, ...], classes: int, expected: Facts
) -> None:
    assert facts(MODELS[name](), shape, classes) == expected
    assert facts(MODELS[name](), shape, classes) == expected  # remembered


def test_they_are_found_once(cache: Path) -> None:
    first = facts(MODELS["cnn"](), (1, 4, 4), 3)
    (key,) = stored = json.loads(cache.read_text())
    stored[key]["d"] += 1
    cache.write_text(json.dumps(stored))
    assert facts(MODELS["cnn"](), (1, 4, 4), 3).d == first.d + 1
    assert facts(MODELS["cnn"](), (1, 4, 4), 4).d == first.d + 33
    stored[key]["d"] = "many"
    cache.write_text(json.dumps(stored))
    assert facts(MODELS["cnn"](), (1, 4, 4), 3) == first


def test_a_model_of_ones_own_is_always_looked_at(cache: Path) -> None:
    assert facts(made(MODELS["logistic"]().build), (2, 2), 3).d == 15
    assert not cache.exists()


def test_a_model_that_cannot_be_built_is_an_error_each_time(cache: Path) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="vgg11 needs samples"):
            facts(MODELS["vgg11"](), (3, 8, 8), 10)
    assert not cache.exists()
