"""Models by name, a paper a file, and a user's own."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from simfl.learning.models.base import Model as Model
from simfl.learning.models.shapes import Shape as Shape


def _from(
    file: str, name: str, shape: Shape | None, classes: int | None, summary: str, function: str = ""
) -> Model:
    """A model of this package, whose file is imported when it is built: torch takes more than a second."""

    def build(input_shape: Shape, classes: int) -> Any:
        return getattr(import_module(f"{__name__}.{file}"), function or name)(input_shape, classes)

    return Model(name, build, shape, classes, summary)


MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        _from("logistic", "logistic", None, None, "logistic (softmax) regression: one linear layer"),
        _from("logistic", "softmax", (1, 112, 92), 40, "the same, on the AT&T faces", "logistic"),
        _from("cnn", "cnn", None, None, "two small convolutions, for tests and laptops"),
        _from("mcmahan", "mcmahan_cnn", (1, 28, 28), 10, "the CNN of FedAvg, McMahan 2017"),
        _from("femnist", "femnist_cnn", (1, 28, 28), 62, "FEMNIST's CNN with dropout, Reddi 2021, FedML"),
        _from("lenet", "lenet5", (1, 28, 28), 10, "LeNet-5, LeCun 1998; 62,006 parameters on CIFAR-10"),
        _from("vgg", "vgg11", (3, 32, 32), 100, "VGG-11 for CIFAR-100, Simonyan 2015"),
        _from(
            "mobilenet", "mobilenet_v3", (3, 224, 224), 1000,
            "MobileNetV3 small, Howard 2019, FedML's variant",
        ),
        _from("efficientnet", "efficientnet_b0", (3, 224, 224), 1000, "EfficientNet-B0, Tan 2019"),
    )
}  # fmt: skip


def find(name: str, folder: Path | None = None) -> Model:
    """A model of MODELS, or with a colon in its name a user's own (see `own_model`); else ValueError."""
    if ":" in name:
        from simfl.learning.models.own import own_model

        return own_model(name, folder)
    if name not in MODELS:
        raise ValueError(
            f"model {name!r:.200} is not one of {', '.join(MODELS)}, nor a path.py:build of your own"
        )
    return MODELS[name]
