"""Facts of a model that are needed before it trains: found once a machine, as torch's compiler takes seconds.

A user's own model is always looked at: its file may have changed, and what it imports too.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from math import prod
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from simfl.learning.models.model import Model, Shape
from simfl.learning.models.registry import Logistic


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of a model that a run needs."""

    d: int
    """Parameters that are trained and sent."""
    softmax: bool
    """Built by `Logistic`, which has a closed form."""
    macs: int
    """Multiply-adds of one sample's forward pass (`multiply_adds.macs`)."""
    recurrent: bool = False
    """It has recurrent layers."""
    partly: bool = False
    """Some of its parameters are not sent."""
    digest: str = ""
    """Digest of a file's model, by its layers."""


def facts(model: Model, shape: Shape, classes: int, tokens: bool = False) -> Facts:
    """Return the facts of a model for such samples; tokens: of integers. ValueError as of `rules.blank`."""
    if (size := model.size()) is not None:
        return Facts(size[0], False, size[1])
    if type(model).build is Logistic.build:
        if tokens:
            raise ValueError(f"model {model.name} takes numbers, and the samples are tokens: embed them")
        return Facts((prod(shape) + 1) * classes, True, prod(shape) * classes)
    if not _is_ours(model):
        return _find(model, shape, classes, tokens)
    # SIMFL_CACHE, or the user's cache folder by the XDG rules.
    own, base = os.environ.get("SIMFL_CACHE"), os.environ.get("XDG_CACHE_HOME")
    folder = Path(own) if own else (Path(base) if base else Path.home() / ".cache") / "simfl"
    file = folder / "models.json"
    key = f"{model.name} {'x'.join(map(str, shape))} {classes} {'tokens ' * tokens}{_code()}"
    known: dict[str, Any] = {}
    # An unreadable or unwritable cache is ignored.
    with suppress(OSError, ValueError, TypeError):
        known = dict(json.loads(file.read_text(encoding="utf-8")))
    with suppress(KeyError, TypeError, ValueError):
        return Facts(**known[key])
    found = _find(model, shape, classes, tokens)
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            json.dump({**known, key: asdict(found)}, out, indent=1)
        os.replace(temporary, file)
    return found


def _find(model: Model, shape: Shape, classes: int, tokens: bool) -> Facts:
    from simfl.learning.models.multiply_adds import digest, is_recurrent, macs
    from simfl.learning.models.rules import blank, shared

    module = blank(model, shape, classes, tokens=tokens)
    d = sum(p.numel() for _, p in shared(module, model))
    partly = d < sum(p.numel() for p in module.parameters())
    named = "" if _is_ours(model) else digest(module, shape, tokens)
    return Facts(d, False, macs(module, shape, tokens), is_recurrent(module), partly, named)


def law_name(model: Model, known: Facts) -> str:
    """Return the name of a model in a profile's laws: the word of ours, the class and digest of another."""
    return f"{type(model).__name__}#{known.digest}" if known.digest else model.name


def _is_ours(model: Model) -> bool:
    return type(model).__module__.startswith("simfl.")


@cache
def _code() -> str:
    """Return what the facts depend on: torch's version and the sources."""
    sources = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return f"torch {version('torch')} {hashlib.sha256(sources).hexdigest()[:16]}"
