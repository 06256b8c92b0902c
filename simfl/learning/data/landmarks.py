"""Google Landmarks (GLD-23K): photographs by their authors, read from JPEG files when they are indexed.

mini_gld_train_split.csv has a user_id, an image_id and a class a line, mini_gld_test.csv an image_id and a
class; the images are images/<image_id>.jpg, or images/a/b/c/<image_id>.jpg by its first three characters
(Hsu, Qi, Brown, "Federated Visual Classification with Real-World Data Distribution", 2020, as TensorFlow
Federated and FedML publish it).
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np

from simfl.blocks import Pixels
from simfl.learning.data.dataset import EVALUATED, I64, U8, DataError, Split
from simfl.learning.data.published import Published, decoded, listed

_CLASSES = 203
_ID = re.compile(r"[0-9A-Za-z_-]{3,}")  # an id is part of a path, so it must not name another folder
_CLASS = re.compile(r"[0-9]{1,9}")


class Landmarks(Published):
    """GLD-23K, photographs of landmarks by author: 233 natural users, 3 x size x size, 203 classes."""

    main_key = "size"
    kind: Literal["gld23k"] = "gld23k"
    published = "Google Landmarks v2 in the federated split gld23k of TensorFlow Federated and FedML"
    labels = _CLASSES
    size: Pixels = 224
    """Pixels of a side that images are resized to."""

    def read(self, folders: list[Path]) -> Split:
        """Return pixels uint8 of the largest centred squares, resized; images stay on disk.

        Published with 23,080 samples to train and 1,959 to test. Users are numbered in the order of the file.
        """
        if find_spec("PIL") is None:
            raise DataError("gld23k: its images need Pillow: pip install simfl[images]")
        (train,), (test,) = self.files(folders, ("mini_gld_train_split.csv",), ("mini_gld_test.csv",))
        x_train, y_train, names = self._samples(train, "user_id")
        x_test, y_test, _ = self._samples(test)
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        owner = np.array([numbers[name] for name in names], np.int64)
        return Split(x_train, y_train, x_test, y_test, classes=_CLASSES, owner=owner)

    def _samples(self, table: Path, *more: str) -> tuple[JpegImages, I64, list[str]]:
        """Return the images and labels of a table, and its column `more`, if one is asked for."""
        names, labels, paths, folder = [], [], [], table.parent / "images"
        for line, (*name, image, label) in _rows(table, (*more, "image_id", "class")):
            if not _CLASS.fullmatch(label) or int(label) >= _CLASSES:
                raise DataError(f"{table}: line {line}: class {label!r:.60} is not in 0 .. {_CLASSES - 1}")
            if not _ID.fullmatch(image):
                raise DataError(f"{table}: line {line}: image_id {image!r:.60}, expected letters and digits")
            flat, nested = folder / f"{image}.jpg", folder.joinpath(*image[:3], f"{image}.jpg")
            paths.append(nested if not flat.is_file() and nested.is_file() else flat)
            labels.append(int(label))
            names += name
        absent = [path.name for path in paths if not path.is_file()]
        if absent:
            raise self.missing(
                [listed(absent)], f"{folder} ({len(absent)} of {len(paths)} images of {table})"
            )
        return JpegImages(tuple(paths), self.size), np.array(labels, np.int64), names

    def bytes_needed(self, each_dealt: int, real: bool) -> int:
        """Return what a pass of evaluation takes: images stay on disk."""
        return 5 * EVALUATED * 3 * self.size**2 if real else 0


@dataclass(frozen=True, slots=True)
class JpegImages:
    """Images [n, 3, size, size] uint8 of files (see `LazyImages`)."""

    paths: tuple[Path, ...]
    size: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.paths), 3, self.size, self.size)

    @property
    def dtype(self) -> np.dtype[np.uint8]:
        return np.dtype(np.uint8)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, rows: I64, /) -> U8:
        images = np.empty((len(rows), *self.shape[1:]), np.uint8)
        for image, row in zip(images, rows.tolist(), strict=True):
            image[:] = _opened(self.paths[row], self.size)
        return images


def _opened(path: Path, size: int) -> U8:
    from PIL import Image, ImageOps

    try:
        with Image.open(path, formats=("JPEG",)) as image:
            image.draft("RGB", (size, size))  # a JPEG need not be decoded at many times the size
            square = ImageOps.fit(image.convert("RGB"), (size, size), Image.Resampling.BILINEAR)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{path}: cannot be read as an image: {error}") from None
    return np.asarray(square, np.uint8).transpose(2, 0, 1)


def _rows(table: Path, columns: tuple[str, ...]) -> list[tuple[int, list[str]]]:
    """Return each line's number and its values of these columns."""
    reader = csv.reader(io.StringIO(decoded(table), newline=""))
    try:
        header = next(reader, [])
        lines = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise DataError(f"{table}: line {reader.line_num}: {error}") from None
    if not set(columns) <= set(header):
        raise DataError(f"{table}: columns {header!r:.200}, expected {', '.join(columns)}")
    if not lines:
        raise DataError(f"{table}: no lines after the header, expected at least one")
    for line, row in lines:
        if len(row) != len(header):
            raise DataError(f"{table}: line {line}: {len(row)} values, expected {len(header)}")
    at = [header.index(column) for column in columns]
    return [(line, [row[i] for i in at]) for line, row in lines]
