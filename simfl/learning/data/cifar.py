"""CIFAR-10 and CIFAR-100 in their binary version: records without a header or anything between them.

A record is a label byte (CIFAR-100: a coarse one, then a fine one) and 3072 pixels, 1024 of red, green and
blue each, row by row (Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009, and its
data's page). The Python version is pickled, which is never read: unpickling executes what it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from simfl.learning.data.dataset import I64, U8, DataError, Split, check_labels
from simfl.learning.data.published import Published, read

_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32


class _Cifar(Published):
    """Records with so many bytes of labels, the last of which counts."""

    size_bytes = 60_000 * _PIXELS
    train: ClassVar[tuple[str, ...]]
    test: ClassVar[str]
    pickled: ClassVar[tuple[str, ...]]
    """Names by which the Python version is known."""
    label_bytes: ClassVar[int]

    def read(self, folders: list[Path]) -> Split:
        def there(names: tuple[str, ...]) -> list[Path]:
            return [folder / name for folder in folders for name in names if (folder / name).exists()]

        names = (*self.train, self.test)
        if not there(names) and (python := there(self.pickled)):
            raise DataError(
                f"{self.kind}: {python[0]} is of the Python version, which is pickled; the binary version is "
                f"needed ({', '.join(names)}), published as {self.published}"
            )
        paths = [held[0] for held in self.files(folders, *((name,) for name in names))]
        train = _samples(paths[:-1], self.label_bytes, self.labels)
        return Split(*train, *_samples(paths[-1:], self.label_bytes, self.labels), classes=self.labels)


class Cifar10(_Cifar):
    """Small photographs: 50,000 to train, 10,000 to test, 3x32x32, 10 classes."""

    kind: Literal["cifar10"] = "cifar10"
    published = "CIFAR-10, binary version, Krizhevsky, Nair, Hinton, University of Toronto"
    inner = ("cifar-10-batches-bin",)
    train, test = tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"
    pickled = ("cifar-10-batches-py", "batches.meta", "data_batch_1")
    label_bytes = 1


class Cifar100(_Cifar):
    """Small photographs: 50,000 to train, 10,000 to test, 3x32x32, 100 classes."""

    kind: Literal["cifar100"] = "cifar100"
    published = "CIFAR-100, binary version, Krizhevsky, Nair, Hinton, University of Toronto"
    inner = ("cifar-100-binary",)
    train, test = ("train.bin",), "test.bin"
    pickled = ("cifar-100-python", "meta")
    label_bytes = 2
    labels = 100


def _samples(paths: Sequence[Path], label_bytes: int, classes: int) -> tuple[U8, I64]:
    records = [_records(path, label_bytes, classes) for path in paths]
    images = np.concatenate([r[:, label_bytes:] for r in records])
    labels = np.concatenate([r[:, label_bytes - 1] for r in records])
    return images.reshape(-1, *_SHAPE), labels.astype(np.int64)


def _records(path: Path, label_bytes: int, classes: int) -> U8:
    content = read(path)
    record_bytes = label_bytes + _PIXELS
    if len(content) % record_bytes:
        raise DataError(
            f"{path}: {len(content)} bytes, expected a multiple of {record_bytes} ({label_bytes} of labels "
            f"and {_PIXELS} of pixels a record); {len(content) % record_bytes} are left over"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, record_bytes)
    check_labels(str(path), records[:, label_bytes - 1].astype(np.int64), classes)
    return records
