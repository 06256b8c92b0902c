"""Data sets by the name in a scenario."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simfl.learning.data.bundled import digits
from simfl.learning.data.cifar import cifar10, cifar100
from simfl.learning.data.faces import att_faces
from simfl.learning.data.files import Places
from simfl.learning.data.idx import mnist
from simfl.learning.data.landmarks import gld23k
from simfl.learning.data.leaf import femnist
from simfl.learning.data.npz import npz
from simfl.learning.data.split import DataError, Split
from simfl.learning.data.synthetic import synthetic

ROOT_VARIABLE = "SIMFL_DATA"


@dataclass(frozen=True, slots=True)
class Dataset:
    """load(places, **options) reads a data set's files if it needs a root, and otherwise load(rng, **options)
    makes it. summary: one line. published: where it comes from, by name. options: what `load` takes."""

    load: Callable[..., Split]
    summary: str
    published: str
    needs_root: bool = False
    options: tuple[str, ...] = ()


DATASETS: dict[str, Dataset] = {
    "digits": Dataset(
        digits,
        "handwritten digits, bundled: 1437 to train, 360 to test, 1x8x8, 10 classes",
        "UCI optical recognition of handwritten digits, Alpaydin, Kaynak; bundled with scikit-learn",
    ),
    "synthetic": Dataset(
        synthetic,
        "made-up samples of any shape: a Gaussian around the mean of each class",
        "drawn by the scenario's seed",
        options=("shape", "classes", "train", "test", "noise"),
    ),
    "npz": Dataset(
        npz,
        "your own: arrays x_train, y_train, x_test, y_test (and owner, classes) of an .npz file",
        "a file of your own",
        options=("file",),
    ),
    "mnist": Dataset(
        mnist,
        "handwritten digits: 60,000 to train, 10,000 to test, 1x28x28, 10 classes",
        "the MNIST database of handwritten digits, LeCun, Cortes, Burges",
        needs_root=True,
    ),
    "fashion_mnist": Dataset(
        mnist,
        "pictures of clothes: 60,000 to train, 10,000 to test, 1x28x28, 10 classes",
        "Fashion-MNIST, Xiao, Rasul, Vollgraf, Zalando Research",
        needs_root=True,
    ),
    "cifar10": Dataset(
        cifar10,
        "small photographs: 50,000 to train, 10,000 to test, 3x32x32, 10 classes",
        "CIFAR-10, binary version, Krizhevsky, Nair, Hinton, University of Toronto",
        needs_root=True,
    ),
    "cifar100": Dataset(
        cifar100,
        "small photographs: 50,000 to train, 10,000 to test, 3x32x32, 100 classes",
        "CIFAR-100, binary version, Krizhevsky, Nair, Hinton, University of Toronto",
        needs_root=True,
    ),
    "femnist": Dataset(
        femnist,
        "handwritten characters by writer: up to 3,550 natural users, 1x28x28, 62 classes",
        "FEMNIST of the LEAF benchmark, Caldas et al., whose preprocess.sh writes train/ and test/",
        needs_root=True,
    ),
    "att_faces": Dataset(
        att_faces,
        "portraits of 40 people: 320 to train, the last two of each person to test, 1x112x92, 40 classes",
        "the Database of Faces (formerly the ORL Database of Faces), AT&T Laboratories Cambridge",
        needs_root=True,
    ),
    "gld23k": Dataset(
        gld23k,
        "photographs of landmarks by author: 233 natural users, 3 x size x size, 203 classes",
        "Google Landmarks v2 in the federated split gld23k of TensorFlow Federated and FedML",
        needs_root=True,
        options=("size",),
    ),
}


def load(name: str, rng: np.random.Generator, root: Path | None = None, **options: object) -> Split:
    """A data set by its name, checked.

    rng: for those that draw their samples. root: the folder in which published ones lie, in a folder of their
    name or in itself; without it the environment's SIMFL_DATA.

    Raises:
        DataError: there is no such data set or option, no root, no file, or one that cannot be used.
    """
    if name not in DATASETS:
        raise DataError(f"dataset {name!r} is none of {', '.join(DATASETS)}")
    dataset = DATASETS[name]
    for option in options:
        if option not in dataset.options:
            known = (
                f"its options are {', '.join(dataset.options)}" if dataset.options else "it has no options"
            )
            raise DataError(f"{name} has no option {option!r}: {known}")
    source = _places(name, dataset, root) if dataset.needs_root else rng
    return dataset.load(source, **options).checked(name)


def _places(name: str, dataset: Dataset, root: Path | None) -> Places:
    given = root if root is not None else os.environ.get(ROOT_VARIABLE)
    if not given:
        raise DataError(
            f"{name} is read from files: set `data.root` (learning.data.root in a scenario) or, in the "
            f"environment, {ROOT_VARIABLE} to their folder; published as {dataset.published}"
        )
    folder = Path(given).expanduser()
    if not folder.is_dir():
        origin = "data.root" if root is not None else ROOT_VARIABLE
        raise DataError(f"{name}: {origin} {folder} is not a folder; published as {dataset.published}")
    return Places(name, dataset.published, (folder / name, folder))
