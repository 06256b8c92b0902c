"""FEMNIST as LEAF's scripts write it: handwritten characters by their writers, in JSON.

A file of train/ or test/ is {"users": [name], "num_samples": [n], "user_data": {name: {"x": [[784 numbers]],
"y": [label]}}} (Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from simfl.learning.data.dataset import F32, I64, DataError, Split, check_labels
from simfl.learning.data.published import Published, decoded

_PIXELS = 28 * 28
_CLASSES = 62


class Femnist(Published):
    """Handwritten characters by writer: up to 3,550 natural users, 1x28x28, 62 classes."""

    kind: Literal["femnist"] = "femnist"
    published = "FEMNIST of the LEAF benchmark, Caldas et al., whose preprocess.sh writes train/ and test/"
    labels = _CLASSES
    inner = ("data",)

    def read(self, folders: list[Path]) -> Split:
        """Return float32 as published, ink 0 on a background of 1: digits, capitals, small letters.

        Writers with training samples own them, numbered in the order of the files' names and, in a file, of
        its users. All is in memory at once: about 3 KB a sample.
        """
        train, test = self.files(folders, ("train/*.json",), ("test/*.json",))
        x_train, y_train, sizes = _side(train)
        x_test, y_test, _ = _side(test)
        owner = np.repeat(np.arange(len(sizes)), sizes)
        return Split(x_train, y_train, x_test, y_test, classes=_CLASSES, owner=owner)


def _side(paths: list[Path]) -> tuple[F32, I64, list[int]]:
    """Return x [n, 1, 28, 28], y [n], and the number of samples of each user."""
    home: dict[str, Path] = {}
    images, labels = [], []
    for path in paths:
        for user, x, y in _users(path):
            if user in home:
                raise DataError(f"{path}: user {user!r} is in {home[user]} too, expected one file a user")
            home[user] = path
            images.append(x)
            labels.append(y)
    if not images:
        raise DataError(f"{paths[0].parent}: no samples in its files, expected at least one")
    return np.concatenate(images).reshape(-1, 1, 28, 28), np.concatenate(labels), [len(y) for y in labels]


def _users(path: Path) -> Iterator[tuple[str, F32, I64]]:
    """Yield name, x [n, 784] and y [n] of each user that has samples."""
    text = decoded(path)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON: {error}") from None
    users = _part(path, content, "users", list)
    sizes = _part(path, content, "num_samples", list)
    by_user = _part(path, content, "user_data", dict)
    del text, content  # of a published file, half a gigabyte with its numbers
    if len(users) != len(sizes):
        raise DataError(f"{path}: {len(users)} users, but num_samples has {len(sizes)} numbers")
    for user, size in zip(users, sizes, strict=True):
        if not isinstance(user, str) or user not in by_user:
            raise DataError(f"{path}: user_data has no {user!r}, who is one of its users")
        samples = by_user.pop(user)
        where = f"{path}: user {user!r}"
        x, y = _part(where, samples, "x", list), _part(where, samples, "y", list)
        if not len(x) == len(y) == size:
            raise DataError(f"{where}: {len(x)} vectors and {len(y)} labels, but num_samples is {size}")
        if x:
            labels = _numbers(f"{where}: y", y, 1, "iu").astype(np.int64)
            check_labels(where, labels, _CLASSES)
            yield user, _vectors(where, x), labels
    if by_user:
        raise DataError(f"{path}: user_data has {next(iter(by_user))!r}, who is not one of its users")


def _part(where: object, content: Any, key: str, kind: type) -> Any:
    if not isinstance(content, dict) or not isinstance(content.get(key), kind):
        raise DataError(f"{where}: no {key!r}, expected {'an object' if kind is dict else 'a list'}")
    return content[key]


def _vectors(where: str, x: list[Any]) -> F32:
    for index, vector in enumerate(x):
        length = len(vector) if isinstance(vector, list) else 1
        if length != _PIXELS:
            raise DataError(f"{where}: vector {index} has length {length}, expected {_PIXELS}")
    numbers = _numbers(f"{where}: x", x, 2, "fiu")
    with np.errstate(over="ignore"):
        vectors = numbers.astype(np.float32)
    infinite = np.argwhere(~np.isfinite(vectors))
    if infinite.size:
        at = infinite[0]
        raise DataError(f"{where}: x{at.tolist()} is {numbers[tuple(at)]}, expected a finite number")
    return vectors


def _numbers(place: str, values: list[Any], dimensions: int, kinds: str) -> NDArray[Any]:
    """Return an array of these kinds of numbers, never of what could be converted to them."""
    try:
        numbers = np.array(values)
    except ValueError:  # lists of different lengths
        numbers = np.array(None)
    if numbers.dtype.kind not in kinds or numbers.ndim != dimensions:
        raise DataError(f"{place} has other values than {'numbers' if 'f' in kinds else 'integers'}")
    return numbers
