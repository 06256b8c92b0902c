"""A user's own model: `path.py:build`, where build(shape of one sample, classes) gives a torch.nn.Module.

The file is Python and is executed. Nothing is unpickled.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from simfl import python_files
from simfl.learning.models.base import Model
from simfl.learning.models.shapes import Shape

if TYPE_CHECKING:
    from torch import nn


def own_model(spec: str, folder: Path | None = None) -> Model:
    """Return the model `path.py:build`; a relative path is of `folder`, None for the working directory.

    build may be a function or a subclass of nn.Module: build(shape, classes) makes a module that maps
    [n, *shape] to logits [n, classes], and must follow `rules`. ValueError, here or when it is built, names
    the model and what is wrong with it.
    """
    file, _, name = spec.rpartition(":")
    try:
        where = spec if folder is None or not file else f"{folder / file}:{name}"
        path, function = python_files.find(where, "build(shape, classes)")
    except ValueError as error:
        raise ValueError(f"model {spec:.200}: {error}") from error
    if not callable(function):
        raise ValueError(f"model {spec}: {path} has no function {name}")

    def build(input_shape: Shape, classes: int) -> nn.Module:
        from torch import nn

        call = f"{name}({list(input_shape)}, {classes})"
        try:
            module = function(input_shape, classes)
        except Exception as error:
            told = python_files.raised(error, path)
            raise ValueError(f"model {spec}: {call}: {told}") from error
        if not isinstance(module, nn.Module):
            raise ValueError(f"model {spec}: {call} gave {type(module).__name__}, not a torch.nn.Module")
        return module

    return Model(spec, build, summary=f"your own, {path}")
