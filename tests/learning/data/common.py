"""Small data sets written as their publishers describe the formats, independently of the readers."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simfl.learning.data import DATASETS, DataError, Split

Array = np.ndarray[Any, Any]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def load(name: str, rng: np.random.Generator, root: Path | None = None, **options: object) -> Split:
    return DATASETS[name].model_validate(options).loaded(rng, root)


def read(name: str, root: Path, **options: object) -> Split:
    return load(name, rng(), root, **options)


def writers(split: Split) -> int:
    """The number of natural users."""
    assert split.owner is not None
    return len(np.unique(split.owner))


def refused(call: Callable[[], object], *parts: object) -> str:
    """The text of the one DataError that a call ends in; each of `parts` is in it."""
    with pytest.raises(DataError) as caught:
        call()
    text = str(caught.value)
    for part in parts:
        assert str(part) in text
    assert "\n" not in text
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return text


def pixels(*shape: int, seed: int = 0) -> Array:
    return rng(seed).integers(0, 256, shape).astype(np.uint8)


def idx(dimensions: Sequence[int], values: bytes, magic: bytes | None = None) -> bytes:
    """Two zero bytes, type 0x08 (unsigned byte), the number of dimensions; each dimension as a 4-byte
    integer, most significant byte first; the data."""
    head = struct.pack(">HBB", 0, 0x08, len(dimensions)) if magic is None else magic
    return head + b"".join(struct.pack(">i", d) for d in dimensions) + values


def idx_images(images: Array) -> bytes:
    """images: [n, rows, columns]."""
    flat = [int(p) for image in images for row in image for p in row]
    return idx(images.shape, struct.pack(f"{len(flat)}B", *flat))


def idx_labels(labels: Sequence[int]) -> bytes:
    return idx([len(labels)], struct.pack(f"{len(labels)}B", *labels))


def cifar(images: Array, *labels: Sequence[int]) -> bytes:
    """<1 x label> (or <1 x coarse><1 x fine>) <3072 x pixel>: red, then green, then blue, row by row.

    images: [n, 32, 32, 3], channels last, unlike what is read.
    """
    records = []
    for i, image in enumerate(images):
        planes = [int(image[row, column, c]) for c in range(3) for row in range(32) for column in range(32)]
        records.append(struct.pack("3072B", *planes))
        records[-1] = bytes(side[i] for side in labels) + records[-1]
    return b"".join(records)


def leaf(users: Mapping[str, tuple[list[list[float]], list[int]]]) -> dict[str, Any]:
    """users, num_samples, user_data: name -> x (vectors of 784) and y."""
    return {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {name: {"x": x, "y": y} for name, (x, y) in users.items()},
    }


def pgm(width: int, height: int, raster: bytes, comment: str = "", maxval: int = 255) -> bytes:
    """ "P5", white space, width, height, maxval, one white space, the raster; comments from # to the end of a
    line."""
    return f"P5\n{comment}{width} {height}\n{maxval}\n".encode() + raster


def dump(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path
