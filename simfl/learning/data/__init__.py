"""Data sets, split once into training and test samples: one format a file."""

from simfl.learning.data.dataset import DataError, Dataset, Split
from simfl.learning.data.registry import DATASETS

__all__ = ["DATASETS", "DataError", "Dataset", "Split"]
