"""What was found out on this machine and need not be again: small facts in the user's cache folder."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


def remembered(file: str, kind: type[T], key: str, find: Callable[[], T]) -> T:
    """The value of a key in a file of the cache, or else a new one, which is then remembered.

    kind: a frozen dataclass. A cache that cannot be read or written is none.
    """
    path = cache_folder() / file
    known: dict[str, Any] = {}
    with suppress(OSError, ValueError, TypeError):
        known = dict(json.loads(path.read_text(encoding="utf-8")))
    with suppress(KeyError, ValueError):
        return TypeAdapter(kind).validate_python(known[key])
    value = find()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            json.dump({**known, key: asdict(value)}, out, indent=1)
        os.replace(temporary, path)
    return value


def cache_folder() -> Path:
    """SIMFL_CACHE, or the user's cache folder by the XDG rules."""
    own = os.environ.get("SIMFL_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(own) if own else (Path(base) if base else Path.home() / ".cache") / "simfl"
