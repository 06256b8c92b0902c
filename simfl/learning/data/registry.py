"""Data sets: ours, each a reader of published files or a maker of samples, and anybody's."""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from simfl.blocks import Classes, Count, Pixels, Positive, Sizes, Text
from simfl.kinds import Choice, Kinds
from simfl.learning.data import cifar, idx, npz
from simfl.learning.data.bundled import digits
from simfl.learning.data.faces import att_faces
from simfl.learning.data.files import Places
from simfl.learning.data.landmarks import gld23k
from simfl.learning.data.leaf import femnist
from simfl.learning.data.split import DataError, Split
from simfl.learning.data.synthetic import synthetic

ROOT_VARIABLE = "SIMFL_DATA"
EVALUATED = 512
"""Test samples that are evaluated at once."""


class Dataset(Choice):
    """A data set; `load` is all that one of your own needs.

    >>> class Sign(Dataset):
    ...     samples: int = 100
    ...     def load(self, rng, root):
    ...         x = rng.standard_normal((self.samples, 2), np.float32)
    ...         y = (x.sum(axis=1) > 0).astype(np.int64)
    ...         return Split(x, y, x[:10], y[:10], classes=2)
    >>> Sign().loaded(np.random.default_rng(0)).shape
    (2,)
    """

    published: ClassVar[str] = "a file of your own"
    """Where it comes from, by name."""
    size_bytes: ClassVar[int] = 0
    """Bytes of its samples in memory, where they are the same everywhere; else known once it is read."""
    labels: ClassVar[int] = 10
    """The number of classes, about, before it is read."""

    @abstractmethod
    def load(self, rng: np.random.Generator, root: Path | None) -> Split:
        """Return training and test samples, of one class each.

        Args:
            rng: for samples that are drawn; the stream of the scenario's data.
            root: `learning.data.root`, the folder in which published ones lie.

        Raises:
            DataError: it is not there, or cannot be used.
        """

    def loaded(self, rng: np.random.Generator, root: Path | None = None) -> Split:
        """Return what `load` does, checked. DataError if it breaks the rules of a `Split`."""
        split = self.load(rng, root)
        if not isinstance(split, Split):
            raise DataError(f"data set {type(self).__name__} gave {type(split).__name__}, not a Split")
        return split.checked(type(self).__name__ if self.kind in ("", "module") else self.kind)

    def bytes_needed(self, each_dealt: int, real: bool) -> int:
        """Return what it takes while it is made and dealt out (each_dealt: bytes a sample), and a pass of
        evaluation where training is real."""
        return self.size_bytes

    def classes_expected(self) -> int:
        """Return the number of classes, about, before it is read."""
        return self.labels


class _Published(Dataset):
    """Files that somebody published, in a folder of the data set's name or in the root itself."""

    @abstractmethod
    def read(self, places: Places) -> Split:
        """Return what the files hold."""

    def load(self, rng: np.random.Generator, root: Path | None) -> Split:
        return self.read(self.places(root))

    def places(self, root: Path | None) -> Places:
        """Return where its files may lie; without a root, that of the environment's SIMFL_DATA.

        Raises:
            DataError: there is no root.
        """
        given = root if root is not None else os.environ.get(ROOT_VARIABLE)
        if not given:
            raise DataError(
                f"{self.kind} is read from files: set `data.root` (learning.data.root in a scenario) or, in "
                f"the environment, {ROOT_VARIABLE} to their folder; published as {self.published}"
            )
        folder = Path(given).expanduser()
        if not folder.is_dir():
            origin = "data.root" if root is not None else ROOT_VARIABLE
            raise DataError(f"{self.kind}: {origin} {folder} is not a folder; published as {self.published}")
        return Places(self.kind, self.published, (folder / self.kind, folder))


class Digits(Dataset):
    """Handwritten digits, bundled: 1437 to train, 360 to test, 1x8x8, 10 classes."""

    kind: Literal["digits"] = "digits"
    published = "UCI optical recognition of handwritten digits, Alpaydin, Kaynak; bundled with scikit-learn"
    size_bytes = 4 * 1_797 * 64

    def load(self, rng: np.random.Generator, root: Path | None) -> Split:
        return digits(rng)


class Synthetic(Dataset):
    """Made-up samples of any shape: a Gaussian around each class's own mean, `noise` wide."""

    kind: Literal["synthetic"] = "synthetic"
    published = "drawn by the scenario's seed"
    shape: Sizes = (1, 8, 8)
    """The shape of a sample."""
    classes: Classes = 10
    """The number of labels."""
    train: Count = 2000
    """Training samples."""
    test: Count = 500
    """Test samples."""
    noise: Positive = 1.0
    """The width of a class."""

    def load(self, rng: np.random.Generator, root: Path | None) -> Split:
        return synthetic(rng, self.shape, self.classes, self.train, self.test, self.noise)

    def bytes_needed(self, each_dealt: int, real: bool) -> int:
        values = math.prod(self.shape) * (self.classes + 2 * self.train + self.test)
        scores = 12 * min(EVALUATED, self.test) * self.classes if real else 0
        return 4 * values + 24 * (self.train + self.test) + each_dealt * self.train + scores

    def classes_expected(self) -> int:
        return self.classes


class Npz(Dataset):
    """Your own arrays x_train, y_train, x_test, y_test (and owner, classes) of an .npz file."""

    main_key = "file"
    kind: Literal["npz"] = "npz"
    file: Text
    """The file's path, from the scenario's folder."""

    def load(self, rng: np.random.Generator, root: Path | None) -> Split:
        return npz.npz(self.file)


class Mnist(_Published):
    """Handwritten digits: 60,000 to train, 10,000 to test, 1x28x28, 10 classes."""

    kind: Literal["mnist"] = "mnist"
    published = "the MNIST database of handwritten digits, LeCun, Cortes, Burges"
    size_bytes = 70_000 * 784

    def read(self, places: Places) -> Split:
        return idx.mnist(places)


class FashionMnist(_Published):
    """Pictures of clothes: 60,000 to train, 10,000 to test, 1x28x28, 10 classes."""

    kind: Literal["fashion_mnist"] = "fashion_mnist"
    published = "Fashion-MNIST, Xiao, Rasul, Vollgraf, Zalando Research"
    size_bytes = 70_000 * 784

    def read(self, places: Places) -> Split:
        return idx.mnist(places)


class Cifar10(_Published):
    """Small photographs: 50,000 to train, 10,000 to test, 3x32x32, 10 classes."""

    kind: Literal["cifar10"] = "cifar10"
    published = "CIFAR-10, binary version, Krizhevsky, Nair, Hinton, University of Toronto"
    size_bytes = 60_000 * 3_072

    def read(self, places: Places) -> Split:
        return cifar.cifar10(places)


class Cifar100(_Published):
    """Small photographs: 50,000 to train, 10,000 to test, 3x32x32, 100 classes."""

    kind: Literal["cifar100"] = "cifar100"
    published = "CIFAR-100, binary version, Krizhevsky, Nair, Hinton, University of Toronto"
    size_bytes = 60_000 * 3_072
    labels = 100

    def read(self, places: Places) -> Split:
        return cifar.cifar100(places)


class Femnist(_Published):
    """Handwritten characters by writer: up to 3,550 natural users, 1x28x28, 62 classes."""

    kind: Literal["femnist"] = "femnist"
    published = "FEMNIST of the LEAF benchmark, Caldas et al., whose preprocess.sh writes train/ and test/"
    labels = 62

    def read(self, places: Places) -> Split:
        return femnist(places)


class AttFaces(_Published):
    """Portraits of 40 people: 320 to train, the last two of each person to test, 1x112x92, 40 classes."""

    kind: Literal["att_faces"] = "att_faces"
    published = "the Database of Faces (formerly the ORL Database of Faces), AT&T Laboratories Cambridge"
    size_bytes = 400 * 10_304
    labels = 40

    def read(self, places: Places) -> Split:
        return att_faces(places)


class Landmarks(_Published):
    """GLD-23K, photographs of landmarks by author: 233 natural users, 3 x size x size, 203 classes."""

    main_key = "size"
    kind: Literal["gld23k"] = "gld23k"
    published = "Google Landmarks v2 in the federated split gld23k of TensorFlow Federated and FedML"
    labels = 203
    size: Pixels = 224
    """Pixels of a side that images are resized to."""

    def read(self, places: Places) -> Split:
        return gld23k(places, self.size)

    def bytes_needed(self, each_dealt: int, real: bool) -> int:
        """Return what a pass of evaluation takes: images stay on disk."""
        return 5 * EVALUATED * 3 * self.size**2 if real else 0


DATASETS = Kinds(
    "data set",
    Dataset,  # type: ignore[type-abstract]
    (Digits, Synthetic, Npz, Mnist, FashionMnist, Cifar10, Cifar100, Femnist, AttFaces, Landmarks),
    "dataset",
)

if TYPE_CHECKING:
    AnyDataset = Dataset
else:
    AnyDataset = DATASETS.annotation()


def load(name: str, rng: np.random.Generator, root: Path | None = None, **options: Any) -> Split:
    """Return a data set by its name, checked. DataError if it is not there or cannot be used."""
    return DATASETS[name].model_validate(options).loaded(rng, root)
