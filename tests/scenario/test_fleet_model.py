"""A fleet's model by name or size: its length, and the training time that was given."""

from __future__ import annotations

import re
from typing import Any

import pytest

from simfl.errors import ScenarioError
from simfl.learning.models import MODELS
from simfl.scenario.fleet import load_fleet
from simfl.scenario.fleet_model import PASSES, USUAL
from simfl.studies.plan.evaluate import World
from simfl.world import profiles
from tests.studies.plan.small import SMALL

REST = {key: value for key, value in SMALL.items() if key not in ("learning", "dropout")}


def trained(model: Any, **more: Any) -> tuple[int, float]:
    """Return d, and the seconds of a training on a device that is not slower than the profile's."""
    experiment = World.of(load_fleet(REST | {"model": model} | more), 1).experiment
    rates = profiles.load("reference").seconds
    return experiment.trainer.d, sum(n * rates[kind] for kind, n in experiment.trainer.work(0).items())


def test_size_is_of_32_bit_numbers() -> None:
    d, _ = trained({"mb": 5, "train_s": 30})
    assert d == 1_250_000


def test_a_training_takes_its_seconds_on_the_named_phone() -> None:
    """An average snapdragon_8 is 2.05 times slower than the profile's machine."""
    _, seconds = trained({"mb": 5, "train_s": 30, "on": "snapdragon_8"})
    assert 2.05 * seconds == pytest.approx(30, rel=1e-6)


def test_a_training_takes_its_seconds_on_the_average_phone() -> None:
    """Uniform from 10 to 30: 20 on average. Epochs and samples change nothing."""
    devices = REST["population"] | {"devices": {"slowdown": {"kind": "uniform", "low": 10, "high": 30}}}
    for more in ({}, {"samples": 7}, {"learning": {"epochs": 2, "batch_size": 3}}):
        _, seconds = trained({"mb": 1, "train_s": 12}, population=devices, **more)
        assert 20 * seconds == pytest.approx(12, rel=1e-6)


def test_a_model_by_name_has_its_length() -> None:
    """Logistic regression of 28 x 28 in 10 classes, by the layers' products."""
    d, seconds = trained("logistic", samples=10)
    rates = profiles.load("reference").seconds
    assert d == 7_850
    assert seconds == pytest.approx(5 * (10 * PASSES * 7_840 * rates["train_mac"] + rates["train_step"]))


@pytest.mark.parametrize("name", USUAL)
def test_samples_are_those_of_the_documentation(name: str) -> None:
    text = " ".join((MODELS[name].__doc__ or "").split())
    match = re.search(r"; ([0-9x]+) in ([0-9]+) classes: ", text)
    assert match is not None
    assert USUAL[name] == (tuple(map(int, match[1].split("x"))), int(match[2]))


def test_every_model_by_name_is_usable() -> None:
    assert {*USUAL, "size"} == set(MODELS)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"mb": 5}, "train_s is missing: seconds of a local training, from a trial on one phone, such as 30"),
        ({"train_s": 5}, "needs mb, or a name of logistic, "),
        ({"mb": 5, "name": "cnn", "train_s": 1}, "needs mb, or a name of logistic, "),
        ({"mb": 5, "train_s": 0.001}, "train_s=0.001 must be above "),
        ({"mb": 5, "train_s": 30, "on": "pixel"}, "must be one of snapdragon_8, assumed_phone, not 'pixel'"),
    ],
)
def test_a_wrong_model_is_one_message(model: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError) as wrong:
        load_fleet(REST | {"model": model})
    assert message in str(wrong.value)
    assert len(wrong.value.problems) == 1
