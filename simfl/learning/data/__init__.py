"""Data sets, split once into training and test samples: one format a file, `load` by name."""

from simfl.learning.data.bundled import digits
from simfl.learning.data.registry import DATASETS, Dataset, load
from simfl.learning.data.split import DataError, LazyImages, Samples, Split, as_float

__all__ = ["DATASETS", "DataError", "Dataset", "LazyImages", "Samples", "Split", "as_float", "digits", "load"]
