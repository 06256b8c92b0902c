"""The training method that `auto` chooses, by the model and the device."""

from __future__ import annotations

import pytest

from simfl.learning.sgd import CHUNK, TrainingMethod, choose_method


@pytest.mark.parametrize(
    ("asked", "softmax", "device", "name"),
    [
        ("auto", True, "cpu", "closed_form"),
        ("auto", True, "cuda", "closed_form"),
        ("auto", False, "cpu", "loop"),
        ("auto", False, "cuda", "vectorised"),
        ("vectorised", True, "cpu", "vectorised"),
        ("loop", True, "cuda", "loop"),
    ],
)
def test_auto_follows_model_and_device(asked: object, softmax: bool, device: str, name: str) -> None:
    way = choose_method(asked, softmax, device)  # type: ignore[arg-type]
    assert way == TrainingMethod(name, 1 if name == "loop" else CHUNK[device])  # type: ignore[arg-type]


def test_a_training_method_is_described_in_words() -> None:
    assert str(TrainingMethod("loop", 1)) == "one client after the other"
    assert str(TrainingMethod("closed_form", 64)) == "closed form, up to 64 clients at a time"
