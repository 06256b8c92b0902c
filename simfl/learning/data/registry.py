"""The data sets that a scenario can name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simfl.kinds import Kinds
from simfl.learning.data.bundled import Digits, Synthetic
from simfl.learning.data.cifar import Cifar10, Cifar100
from simfl.learning.data.dataset import Dataset
from simfl.learning.data.faces import AttFaces
from simfl.learning.data.idx import FashionMnist, Mnist
from simfl.learning.data.landmarks import Landmarks
from simfl.learning.data.leaf import Femnist
from simfl.learning.data.npz import Npz

_OURS = (Digits, Synthetic, Npz, Mnist, FashionMnist, Cifar10, Cifar100, Femnist, AttFaces, Landmarks)
DATASETS = Kinds("data set", Dataset, _OURS, "dataset")  # type: ignore[type-abstract]

if TYPE_CHECKING:
    AnyDataset = Dataset
else:
    AnyDataset = DATASETS.annotation()
