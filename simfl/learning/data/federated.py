"""Published data sets of natural users: FEMNIST by its writers, Google Landmarks by its photographers.

LEAF's scripts write FEMNIST's train/ and test/, files of {"users": [name], "num_samples": [n], "user_data":
{name: {"x": [[784 numbers]], "y": [label]}}} (Caldas et al., "LEAF: A Benchmark for Federated Settings").
GLD-23K has a user_id, an image_id and a class a line in mini_gld_train_split.csv, an image_id and a class in
mini_gld_test.csv, and images/<image_id>.jpg, or images/a/b/c/<image_id>.jpg by its first three characters
(Hsu, Qi, Brown, "Federated Visual Classification with Real-World Data Distribution", 2020, as TensorFlow
Federated and FedML publish it).
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from simfl.config.blocks import Pixels
from simfl.learning.data.dataset import (
    EVALUATED,
    F32,
    I64,
    U8,
    Array,
    DataError,
    LazyImages,
    Split,
    check_labels,
)
from simfl.learning.data.published import Published, decoded

_FEMNIST_PIXELS = 28 * 28
_IMAGE_ID = re.compile(r"[0-9A-Za-z_-]{3,}")
"""An id is part of a path, so it must not lead to another folder."""
_CLASS = re.compile(r"[0-9]{1,9}")


class Femnist(Published):
    """Handwritten characters by writer: up to 3,550 natural users, 1x28x28, 62 classes."""

    kind: Literal["femnist"] = "femnist"
    published = "FEMNIST of the LEAF benchmark, Caldas et al., whose preprocess.sh writes train/ and test/"
    labels = 62
    inner = ("data",)

    def read(self, folders: list[Path]) -> Split:
        """Return float32 as published, ink 0 on a background of 1: digits, capitals, small letters.

        Writers are the natural users, numbered in the order of the files' names and, in a file, of its users.
        All samples are in memory at once: about 3 KB a sample.
        """
        train, test = self.files(folders, ("train/*.json",), ("test/*.json",))
        x_train, y_train, sizes = side(train, _characters)
        x_test, y_test, _ = side(test, _characters)
        owner, shape = np.repeat(np.arange(len(sizes)), sizes), (-1, 1, 28, 28)
        x = x_train.reshape(shape), x_test.reshape(shape)
        return Split(x[0], y_train, x[1], y_test, classes=self.labels, owner=owner)


def _characters(where: str, x: list[Any], y: list[Any]) -> tuple[F32, I64]:
    labels = _numbers(f"{where}: y", y, 1, "iu").astype(np.int64)
    check_labels(where, labels, Femnist.labels)
    return _vectors(where, x), labels


Reading = Callable[[str, list[Any], list[Any]], tuple[Array, I64]]
"""(place of a user's samples, for messages; their x and y) -> x and y as arrays."""


def side(paths: list[Path], reading: Reading) -> tuple[Array, I64, list[int]]:
    """Return the samples of LEAF's files.

    Args:
        paths: The files of the training or the test side.
        reading: Converts a user's samples.

    Returns:
        x [n, ...], y [n], and the number of samples of each user.

    Raises:
        DataError: A file is malformed, a user is in two files, or there are no samples.
    """
    home: dict[str, Path] = {}
    images, labels = [], []
    for path in paths:
        for user, x, y in _users(path, reading):
            # Users are numbered in the order of files, so samples in two files would be two users.
            if user in home:
                raise DataError(f"{path}: user {user!r} is in {home[user]} too, expected one file a user")
            home[user] = path
            images.append(x)
            labels.append(y)
    if not images:
        raise DataError(f"{paths[0].parent}: no samples in its files, expected at least one")
    return np.concatenate(images), np.concatenate(labels), [len(y) for y in labels]


def _users(path: Path, reading: Reading) -> Iterator[tuple[str, Array, I64]]:
    """Yield name, x [n, ...] and y [n] of each user with samples."""
    text = decoded(path)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON: {error}") from None
    users = _part(path, content, "users", list)
    sizes = _part(path, content, "num_samples", list)
    by_user = _part(path, content, "user_data", dict)
    # For a published file they are half a gigabyte, besides the numbers.
    del text, content
    if len(users) != len(sizes):
        raise DataError(f"{path}: {len(users)} users, but num_samples has {len(sizes)} numbers")
    for user, size in zip(users, sizes, strict=True):
        if not isinstance(user, str) or user not in by_user:
            raise DataError(f"{path}: user_data has no {user!r}, who is one of its users")
        # Popped, so that a user's numbers are freed once they are an array, and users without an entry
        # remain.
        samples = by_user.pop(user)
        where = f"{path}: user {user!r}"
        x, y = _part(where, samples, "x", list), _part(where, samples, "y", list)
        # The file states the number three times over, so a file that was cut or edited is found here.
        if not len(x) == len(y) == size:
            raise DataError(f"{where}: {len(x)} samples and {len(y)} labels, but num_samples is {size}")
        if x:
            yield user, *reading(where, x, y)
    if by_user:
        raise DataError(f"{path}: user_data has {next(iter(by_user))!r}, who is not one of its users")


def _part(where: object, content: Any, key: str, kind: type) -> Any:
    if not isinstance(content, dict) or not isinstance(content.get(key), kind):
        raise DataError(f"{where}: no {key!r}, expected {'an object' if kind is dict else 'a list'}")
    return content[key]


def _vectors(where: str, x: list[Any]) -> F32:
    for index, vector in enumerate(x):
        length = len(vector) if isinstance(vector, list) else 1
        if length != _FEMNIST_PIXELS:
            raise DataError(f"{where}: vector {index} has length {length}, expected {_FEMNIST_PIXELS}")
    numbers = _numbers(f"{where}: x", x, 2, "fiu")
    # JSON's numbers are float64; one beyond float32 becomes infinite, and the check below names its place.
    with np.errstate(over="ignore"):
        vectors = numbers.astype(np.float32)
    if (infinite := np.argwhere(~np.isfinite(vectors))).size:
        index = infinite[0]
        raise DataError(f"{where}: x{index.tolist()} is {numbers[tuple(index)]}, expected a finite number")
    return vectors


def _numbers(place: str, values: list[Any], dimensions: int, kinds: str) -> NDArray[Any]:
    """Return an array of numbers of these kinds; texts that could be converted to numbers are refused."""
    try:
        numbers = np.array(values)
    except ValueError:
        # Lists of different lengths are no array: refused below, like an array of another kind.
        numbers = np.array(None)
    if numbers.dtype.kind not in kinds or numbers.ndim != dimensions:
        raise DataError(f"{place} has other values than {'numbers' if 'f' in kinds else 'integers'}")
    return numbers


class Landmarks(Published):
    """GLD-23K, photographs of landmarks by author: 233 natural users, 3 x size x size, 203 classes."""

    main_key = "size"
    kind: Literal["gld23k"] = "gld23k"
    published = "Google Landmarks v2 in the federated split gld23k of TensorFlow Federated and FedML"
    labels = 203
    size: Pixels = 224
    """Pixels of a side that images are resized to."""

    def read(self, folders: list[Path]) -> Split:
        """Return pixels uint8 of the largest centred squares, resized; images stay on disk.

        Published with 23,080 samples to train and 1,959 to test. Users are numbered in the order of the file.
        """
        # Before the tables are read: without Pillow no image could be opened at the first minibatch.
        if find_spec("PIL") is None:
            raise DataError("gld23k: its images need Pillow: pip install simfl[images]")
        (train,), (test,) = self.files(folders, ("mini_gld_train_split.csv",), ("mini_gld_test.csv",))
        x_train, y_train, names = self._samples(train, "user_id")
        x_test, y_test, _ = self._samples(test)
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        owner = np.array([numbers[name] for name in names], np.int64)
        return Split(x_train, y_train, x_test, y_test, classes=self.labels, owner=owner)

    def _samples(self, table: Path, *more: str) -> tuple[LazyImages, I64, list[str]]:
        """Return the images and labels of a table, and its column `more`, if one is named."""
        names, labels, paths, folder = [], [], [], table.parent / "images"
        for line, (*name, image, label) in _rows(table, (*more, "image_id", "class")):
            if not _CLASS.fullmatch(label) or int(label) >= self.labels:
                raise DataError(f"{table}: line {line}: class {label!r:.60} is not in 0 .. {self.labels - 1}")
            if not _IMAGE_ID.fullmatch(image):
                raise DataError(f"{table}: line {line}: image_id {image!r:.60}, expected letters and digits")
            # Both layouts are published. A missing image is named by the flat one.
            flat, nested = folder / f"{image}.jpg", folder.joinpath(*image[:3], f"{image}.jpg")
            paths.append(nested if not flat.is_file() and nested.is_file() else flat)
            labels.append(int(label))
            names += name
        # Images are read during training: a missing one is found now, and not in the middle of a run.
        if absent := [path.name for path in paths if not path.is_file()]:
            raise self.missing(absent, f"{folder} ({len(absent)} of {len(paths)} images of {table})")
        images = LazyImages((len(paths), 3, self.size, self.size), partial(_opened, paths, self.size))
        return images, np.array(labels, np.int64), names

    def bytes_needed(self, each_dealt: int, real: bool) -> int:
        # A pass of evaluation, a byte and a float32 for each number; training images stay on disk.
        return 5 * EVALUATED * 3 * self.size**2 if real else 0


def _opened(paths: list[Path], size: int, row: int) -> U8:
    from PIL import Image, ImageOps

    try:
        # Only the decoder of JPEG: a file cannot choose another one of Pillow's by its first bytes.
        with Image.open(paths[row], formats=("JPEG",)) as image:
            # A JPEG is decoded near the size that is needed, and not at many times of it.
            image.draft("RGB", (size, size))
            square = ImageOps.fit(image.convert("RGB"), (size, size), Image.Resampling.BILINEAR)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{paths[row]}: cannot be read as an image: {error}") from None
    return np.asarray(square, np.uint8).transpose(2, 0, 1)


def _rows(table: Path, columns: tuple[str, ...]) -> list[tuple[int, list[str]]]:
    """Return each line's number and its values of these columns."""
    reader = csv.reader(io.StringIO(decoded(table), newline=""))
    try:
        header = next(reader, [])
        # `line_num` counts lines of the file, also those within a quoted value.
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
    indices = [header.index(column) for column in columns]
    return [(line, [row[i] for i in indices]) for line, row in lines]
