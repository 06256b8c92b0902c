"""Models: simfl's and user-defined ones."""

from simfl.learning.models.model import Model, Shape
from simfl.learning.models.registry import MODELS

__all__ = ["MODELS", "Model", "Shape"]
