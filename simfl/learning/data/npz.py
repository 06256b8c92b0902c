"""Data of one's own: the arrays of an .npz file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from simfl.blocks import Text
from simfl.learning.data.dataset import F32, I64, U8, DataError, Dataset, Split
from simfl.unpacking import UnpackingError, read_npz

_NEEDED = ("x_train", "y_train", "x_test", "y_test")
_OPTIONAL = ("owner", "classes")


class Npz(Dataset):
    """Your own arrays x_train, y_train, x_test, y_test (and owner, classes) of an .npz file."""

    main_key = "file"
    kind: Literal["npz"] = "npz"
    file: Text
    """The file's path, from the scenario's folder."""

    def load(self, rng: np.random.Generator, root: Path | None) -> Split:
        """Return the arrays of a file as `numpy.savez` writes it; others are not read, nothing is unpickled.

        x are floats, kept as float32, or uint8 pixels that mean value / 255; y are integers. `owner` [n] is
        the natural user of each training sample, 0 .. writers - 1; `classes` one integer, without it the
        largest label + 1.
        """
        file, arrays = self.file, _arrays(Path(self.file))
        y_train, y_test = (_integers(file, arrays, key, 1) for key in ("y_train", "y_test"))
        owner = _integers(file, arrays, "owner", 1) if "owner" in arrays else None
        if "classes" in arrays:
            classes = int(_integers(file, arrays, "classes", 0))
        else:
            classes = 1 + max(int(y.max(initial=0)) for y in (y_train, y_test))
        x_train, x_test = (_samples(file, arrays, key) for key in ("x_train", "x_test"))
        return Split(x_train, y_train, x_test, y_test, classes, owner).checked(file)


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        return read_npz(path, _NEEDED, _OPTIONAL)
    except UnpackingError as error:
        raise DataError(f"{path}: {error}") from None


def _integers(file: object, arrays: Mapping[str, NDArray[Any]], key: str, dimensions: int) -> I64:
    array = arrays[key]
    if array.dtype.kind not in "iu" or array.ndim != dimensions:
        raise DataError(
            f"{file}: {key} is {array.dtype} of {array.ndim} dimensions, expected integers of {dimensions}"
        )
    return array.astype(np.int64)


def _samples(file: object, arrays: Mapping[str, NDArray[Any]], key: str) -> F32 | U8:
    array = arrays[key]
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind != "f":
        raise DataError(f"{file}: {key} is {array.dtype}, expected floats or uint8 pixels")
    with np.errstate(over="ignore"):  # `Split.checked` tells
        return array.astype(np.float32)
