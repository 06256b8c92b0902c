"""A model: a block that builds a torch module, under the rules of `rules`.

Torch is imported when a module is built, and not before: to read a scenario takes a tenth of a second without
it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from simfl.config.kinds import KindBlock

if TYPE_CHECKING:
    from torch import nn

Shape = tuple[int, ...]
"""Shape of one sample."""


class Model(KindBlock):
    """A model; a user-defined one needs `build` only.

    >>> class Narrow(Model):
    ...     hidden: int = 5
    ...     def build(self, shape, classes):
    ...         from torch import nn
    ...         return nn.Sequential(nn.Linear(*shape, self.hidden), nn.Linear(self.hidden, classes))
    >>> Narrow(hidden=2).name, Narrow(hidden=2).build((3,), 4)[1].out_features
    ('Narrow(hidden=2)', 4)
    """

    own: ClassVar[tuple[str, ...]] = ()
    """Beginnings of the names of parameters that no user sends, such as `("head.",)`. Users keep no state
    from round to round, so each training starts with their first values, as in FedRecon (Singhal et al.
    2021)."""

    @abstractmethod
    def build(self, shape: Shape, classes: int) -> nn.Module:
        """Return a module that maps samples [n, *shape] to logits [n, classes], under
        `simfl.learning.models.rules`.

        It is called on torch's meta device, which holds shapes only: a content that it gives to parameters is
        lost.

        Args:
            shape: Shape of a sample.
            classes: Number of classes.

        Raises:
            ValueError: There is no such model for these samples.
        """

    def frozen(self) -> Mapping[str, Any]:
        """Return arrays for parameters that are not trained (`requires_grad_(False)`), by name.

        Other such parameters are drawn as starting weights are, the same for all users and in each run.
        """
        return {}

    def size(self) -> tuple[int, int] | None:
        """Return d and the multiply-adds of a sample's forward pass, for a model known by its size only.

        Such a model runs in shadow only. None, by default, for a model with a module.
        """
        return None

    @property
    def name(self) -> str:
        """Its word or path.py:Name, and its fields: its name among a profile's training-time models."""
        word = getattr(self, "module", self.kind) or type(self).__name__
        fields = self.model_dump(mode="json", exclude={"kind", "module"})
        return word + (f"({', '.join(f'{key}={value}' for key, value in fields.items())})" if fields else "")

    def image(self, shape: Shape, least: int) -> tuple[int, int, int]:
        """Return channels, height and width of a sample.

        Raises:
            ValueError: A sample is no image, or a side is below `least`.
        """
        if len(shape) != 3 or min(shape[1:]) < least:
            raise ValueError(f"{self.name} needs samples [c, h, w] with h, w >= {least}, not {list(shape)}")
        channels, height, width = shape
        return channels, height, width
