"""MNIST and Fashion-MNIST: IDX files, gzipped or not.

An IDX file is two zero bytes, a type (8: unsigned bytes), the number of dimensions, each dimension as a
big-endian 32-bit integer, and the values, the last dimension running fastest (LeCun, Cortes, Burges, "The
MNIST database of handwritten digits").
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Literal

import numpy as np

from simfl.learning.data.dataset import I64, U8, DataError, Split, check_labels
from simfl.learning.data.published import Published, read

_UNSIGNED_BYTES = 8
_PIXELS = (28, 28)
_CLASSES = 10


class _Idx(Published):
    """Both sets have files of the same names, and as many samples."""

    size_bytes = 70_000 * 784

    def read(self, folders: list[Path]) -> Split:
        names = [f"{side}-{kind}" for side in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
        paths = [held[0] for held in self.files(folders, *(_spellings(name) for name in names))]
        (x_train, y_train), (x_test, y_test) = _samples(*paths[:2]), _samples(*paths[2:])
        return Split(x_train, y_train, x_test, y_test, classes=_CLASSES)


class Mnist(_Idx):
    """Handwritten digits: 60,000 to train, 10,000 to test, 1x28x28, 10 classes."""

    kind: Literal["mnist"] = "mnist"
    published = "the MNIST database of handwritten digits, LeCun, Cortes, Burges"


class FashionMnist(_Idx):
    """Pictures of clothes: 60,000 to train, 10,000 to test, 1x28x28, 10 classes."""

    kind: Literal["fashion_mnist"] = "fashion_mnist"
    published = "Fashion-MNIST, Xiao, Rasul, Vollgraf, Zalando Research"


def _spellings(name: str) -> tuple[str, ...]:
    dotted = name.replace("-idx", ".idx")
    return tuple(f"{stem}-ubyte{end}" for end in ("", ".gz") for stem in (name, dotted))


def _samples(images: Path, labels: Path) -> tuple[U8, I64]:
    x = read_idx(images, *_PIXELS).reshape(-1, 1, *_PIXELS)
    y = read_idx(labels).astype(np.int64)
    if len(x) != len(y):
        raise DataError(f"{images}: {len(x)} images, but {len(y)} labels in {labels}")
    check_labels(str(labels), y, _CLASSES)
    return x, y


def read_idx(path: Path, *shape: int) -> U8:
    """Return the unsigned bytes [n, *shape] of an IDX file. DataError if it is no such file, or holds values
    of another shape, none, fewer or more than it says."""
    content = read(path)
    dimensions = 1 + len(shape)
    magic, expected = bytes(content[:4]), bytes((0, 0, _UNSIGNED_BYTES, dimensions))
    if magic != expected:
        raise DataError(
            f"{path}: begins with {magic.hex(' ')}, expected {expected.hex(' ')} (IDX, unsigned bytes, "
            f"{dimensions} dimensions)"
        )
    header_bytes = 4 + 4 * dimensions
    if len(content) < header_bytes:
        raise DataError(f"{path}: {len(content)} bytes, expected a header of {header_bytes}")
    sizes = struct.unpack(f">{dimensions}I", content[4:header_bytes])
    if sizes[1:] != shape or not sizes[0]:
        raise DataError(f"{path}: dimensions {list(sizes)}, expected {['1 or more', *shape]}")
    if len(content) - header_bytes != math.prod(sizes):
        raise DataError(
            f"{path}: {len(content) - header_bytes} bytes after the header, expected {math.prod(sizes)} for "
            f"dimensions {list(sizes)}"
        )
    return np.frombuffer(content, np.uint8, offset=header_bytes).reshape(sizes)
