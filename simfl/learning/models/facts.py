"""What is to be known of a model before it trains: found out once a machine, and then without torch.

To find it out takes seconds, since a forward pass on torch's meta device brings its compiler along. A user's
own model is always looked at: its file may have changed, and what it imports too.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from math import prod
from pathlib import Path

from simfl.learning.cache import remembered
from simfl.learning.models import MODELS, Model, Shape


@dataclass(frozen=True, slots=True)
class Facts:
    """d: parameters. softmax: whether it is softmax regression. macs: multiply-adds of one sample's forward
    pass (see `Model.macs`), or None and `why` they are not known."""

    d: int
    softmax: bool
    macs: int | None
    why: str = ""


def facts(model: Model, input_shape: Shape, classes: int) -> Facts:
    """The facts of a model for such samples. ValueError as of `Model.blank`."""
    find = partial(_find, model, input_shape, classes)
    if MODELS.get(model.name) is not model:
        return find()
    shape = "x".join(map(str, input_shape))
    return remembered("models.json", Facts, f"{model.name} {shape} {classes} {_code()}", find)


def _find(model: Model, input_shape: Shape, classes: int) -> Facts:
    import torch
    from torch import nn

    from simfl.learning.closed_form import fits

    with torch.device("meta"):
        module = model.build(input_shape, classes)
    # A flattening and a linear layer of the right sizes say all; a dry run of more costs torch's compiler.
    if type(module) is nn.Sequential and fits(module):
        flatten, linear = module
        assert isinstance(flatten, nn.Flatten)
        assert isinstance(linear, nn.Linear)
        plain = [type(flatten), type(linear)] == [nn.Flatten, nn.Linear]
        ends = (flatten.start_dim, flatten.end_dim, linear.in_features, linear.out_features)
        if plain and ends == (1, -1, prod(input_shape), classes):
            return Facts(sum(p.numel() for p in module.parameters()), True, prod(input_shape) * classes)
    module = model.blank(input_shape, classes)
    d, softmax = sum(p.numel() for p in module.parameters()), fits(module)
    try:
        return Facts(d, softmax, model.macs(input_shape, classes))
    except ValueError as error:
        return Facts(d, softmax, None, str(error))


@cache
def _code() -> str:
    """What the facts depend on: torch's version and the sources."""
    here = Path(__file__).parent
    sources = b"".join(
        path.read_bytes() for path in (*sorted(here.glob("*.py")), here.with_name("closed_form.py"))
    )
    return f"torch {version('torch')} {hashlib.sha256(sources).hexdigest()[:16]}"
