"""Data sets, split once into training and test samples: one format a file."""

from simfl.learning.data.dataset import Dataset
from simfl.learning.data.registry import DATASETS
from simfl.learning.data.split import DataError, Split

__all__ = ["DATASETS", "DataError", "Dataset", "Split"]
