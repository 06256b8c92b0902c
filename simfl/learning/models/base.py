"""What a model is: a name and a builder of torch modules.

A model is a deterministic function of its parameters, its input and what its dropouts keep (see `rules`).
Modules are built as blanks on torch's meta device, which holds shapes only: nothing is initialised, and
torch's global random state is not touched. Torch is imported when a module is built, not before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simfl.learning.models.shapes import Shape

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True)
class Model:
    """A named architecture.

    build(shape of one sample, classes): a module that maps [n, *shape] to logits [n, classes].
    shape, classes: the natural ones, of the data that its source trains it on; None where any.
    summary: one line with the source.
    """

    name: str
    build: Callable[[Shape, int], nn.Module]
    shape: Shape | None = None
    classes: int | None = None
    summary: str = ""

    def blank(self, input_shape: Shape, classes: int, tried: bool = False) -> nn.Module:
        """The module on the meta device: shapes without content. ValueError, naming the model, if it cannot
        be built for such samples or breaks a rule of `rules`. tried: its dry run went well before."""
        import torch

        from simfl.learning.models import rules

        with torch.device("meta"):
            module = self.build(input_shape, classes)
            try:
                return rules.settled(module, input_shape, classes, tried)
            except ValueError as error:
                raise ValueError(f"model {self.name}: {error}") from error

    def macs(self, input_shape: Shape, classes: int) -> int:
        """Multiply-adds of one sample's forward pass (see `work.macs`). ValueError, naming the model, where
        they are not known."""
        from simfl.learning.models import work

        module = self.blank(input_shape, classes)
        try:
            return work.macs(module, input_shape)
        except ValueError as error:
            raise ValueError(f"model {self.name}: {error}") from error

    def parameters(self, input_shape: Shape, classes: int) -> int:
        """d, the number of parameters."""
        return sum(p.numel() for p in self.blank(input_shape, classes).parameters())

    def dropouts(
        self, input_shape: Shape, classes: int, module: nn.Module | None = None
    ) -> list[tuple[str, float, Shape]]:
        """(name of the module, p, shape of its input for one sample) of each dropout, in order of execution
        (see `dropout.dropouts`), found in a module of this model or else in a blank one. ValueError, naming
        the model, where a mask cannot be drawn for each call."""
        from simfl.learning.models import dropout

        module = module or self.blank(input_shape, classes)
        try:
            return dropout.dropouts(module, input_shape)
        except ValueError as error:
            raise ValueError(f"model {self.name}: {error}") from error

    def describe(self) -> str:
        """One line for a list of models: natural input, classes and parameters, then the summary."""
        if self.shape is None or self.classes is None:
            return f"any input and classes. {self.summary}"
        size = "x".join(map(str, self.shape))
        count = self.parameters(self.shape, self.classes)
        return f"{size}, {self.classes} classes: {count:,} parameters. {self.summary}"
