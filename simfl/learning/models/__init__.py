"""Models by name, a paper a file, and a user's own."""

from __future__ import annotations

from pathlib import Path

from simfl.learning.models.base import Model as Model
from simfl.learning.models.batch_norm import BatchNorm as BatchNorm
from simfl.learning.models.cnn import cnn
from simfl.learning.models.dropout import Dropout as Dropout
from simfl.learning.models.efficientnet import efficientnet_b0
from simfl.learning.models.femnist import femnist_cnn
from simfl.learning.models.lenet import lenet5
from simfl.learning.models.logistic import logistic
from simfl.learning.models.mcmahan import mcmahan_cnn
from simfl.learning.models.mobilenet import mobilenet_v3
from simfl.learning.models.own import own_model as own_model
from simfl.learning.models.shapes import Shape as Shape
from simfl.learning.models.vgg import vgg11

MODELS: dict[str, Model] = {
    "logistic": Model("logistic", logistic, summary="logistic (softmax) regression: one linear layer"),
    "softmax": Model("softmax", logistic, (1, 112, 92), 40, "the same, on the AT&T faces"),
    "cnn": Model("cnn", cnn, summary="two small convolutions, for tests and laptops"),
    "mcmahan_cnn": Model("mcmahan_cnn", mcmahan_cnn, (1, 28, 28), 10, "the CNN of FedAvg, McMahan 2017"),
    "femnist_cnn": Model(
        "femnist_cnn", femnist_cnn, (1, 28, 28), 62, "FEMNIST's CNN with dropout, Reddi 2021, FedML"
    ),
    "lenet5": Model("lenet5", lenet5, (1, 28, 28), 10, "LeNet-5, LeCun 1998; 62,006 parameters on CIFAR-10"),
    "vgg11": Model("vgg11", vgg11, (3, 32, 32), 100, "VGG-11 for CIFAR-100, Simonyan 2015"),
    "mobilenet_v3": Model(
        "mobilenet_v3", mobilenet_v3, (3, 224, 224), 1000, "MobileNetV3 small, Howard 2019, FedML's variant"
    ),
    "efficientnet_b0": Model(
        "efficientnet_b0", efficientnet_b0, (3, 224, 224), 1000, "EfficientNet-B0, Tan 2019"
    ),
}


def find(name: str, folder: Path | None = None) -> Model:
    """A model of MODELS, or with a colon in its name a user's own (see `own_model`); else ValueError."""
    if ":" in name:
        return own_model(name, folder)
    if name not in MODELS:
        raise ValueError(f"model {name!r} is not one of {', '.join(MODELS)}, nor a path.py:build of your own")
    return MODELS[name]
