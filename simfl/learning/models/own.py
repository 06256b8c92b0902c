"""A user's own model: `path.py:build`, where build(shape of one sample, classes) gives a torch.nn.Module.

The file is Python and is executed. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import sys
import traceback
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from torch import nn

from simfl.learning.models.base import Model
from simfl.learning.models.shapes import Shape


def own_model(spec: str, folder: Path | None = None) -> Model:
    """The model `path.py:build`; a relative path is of `folder`, None for the working directory.

    build may be a function or a subclass of nn.Module: build(shape, classes) makes a module that maps
    [n, *shape] to logits [n, classes], and must follow `rules`. ValueError, here or when it is built, names
    the model and what is wrong with it.
    """
    file, colon, name = spec.rpartition(":")
    if not (colon and file and name):
        raise ValueError(f"model {spec!r:.200} must be path.py:build")
    path = (folder or Path()) / file
    if path.suffix != ".py" or not path.is_file():
        raise ValueError(f"model {spec:.200}: there is no Python file {path!s:.200}")
    function = getattr(_executed(spec, path), name, None)
    if not callable(function):
        raise ValueError(f"model {spec}: {path} has no function {name}")
    return Model(spec, _guarded(spec, path, name, function), summary=f"your own, {path}")


def _executed(spec: str, path: Path) -> ModuleType:
    private = f"_simfl_model_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]}"
    found = spec_from_file_location(private, path)
    if found is None or found.loader is None:
        raise ValueError(f"model {spec}: {path} cannot be loaded as Python")
    module = module_from_spec(found)
    sys.modules[private] = module  # dataclasses look their module up there
    try:
        found.loader.exec_module(module)
    except Exception as error:
        del sys.modules[private]
        raise ValueError(f"model {spec}: {_raised(error, path)}") from error
    return module


def _guarded(
    spec: str, path: Path, name: str, function: Callable[[Shape, int], object]
) -> Callable[[Shape, int], nn.Module]:
    def build(input_shape: Shape, classes: int) -> nn.Module:
        call = f"{name}({list(input_shape)}, {classes})"
        try:
            module = function(input_shape, classes)
        except Exception as error:
            raise ValueError(f"model {spec}: {call}: {_raised(error, path)}") from error
        if not isinstance(module, nn.Module):
            raise ValueError(f"model {spec}: {call} gave {type(module).__name__}, not a torch.nn.Module")
        return module

    return build


def _raised(error: Exception, path: Path) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == path.resolve()]
    place = f"{path}:{lines[-1]}" if lines else str(path)
    return f"{place} raised {type(error).__name__}: {error}"
