"""The AT&T (ORL) faces: ten portraits each of forty people, as PGM files s1/1.pgm .. s40/10.pgm.

A raw PGM file is "P5", width, height and the largest value in decimal, with white space or comments between
them, one white space, and the pixels row by row (Poskanzer's pgm, 1991).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import numpy as np

from simfl.learning.data.dataset import U8, DataError, Split
from simfl.learning.data.published import Published, read

_PEOPLE, _PORTRAITS, _TEST = 40, 10, 2
_HEIGHT, _WIDTH = 112, 92
_GAP = rb"(?:\s|#[^\r\n]*[\r\n])+"
_HEADER = re.compile(rb"P5" + (_GAP + rb"(\d{1,9})") * 3 + rb"\s")


class AttFaces(Published):
    """Portraits of 40 people: 320 to train, the last two of each person to test, 1x112x92, 40 classes."""

    kind: Literal["att_faces"] = "att_faces"
    published = "the Database of Faces (formerly the ORL Database of Faces), AT&T Laboratories Cambridge"
    size_bytes = 400 * _HEIGHT * _WIDTH
    labels = 40
    inner = ("att_faces", "orl_faces")

    def read(self, folders: list[Path]) -> Split:
        """Return pixels uint8; a class a person, s1 being 0. No split is published."""
        names = [f"s{s}/{i}.pgm" for s in range(1, _PEOPLE + 1) for i in range(1, _PORTRAITS + 1)]
        held = self.files(folders, *((name,) for name in names))
        images = np.stack([_pixels(path) for (path,) in held]).reshape(-1, 1, _HEIGHT, _WIDTH)
        people = np.repeat(np.arange(_PEOPLE), _PORTRAITS)
        test = np.arange(len(images)) % _PORTRAITS >= _PORTRAITS - _TEST
        return Split(images[~test], people[~test], images[test], people[test], classes=_PEOPLE)


def _pixels(path: Path) -> U8:
    """Return the pixels [112, 92] of a raw PGM file."""
    content = read(path)
    header = _HEADER.match(content)
    if not header:
        raise DataError(
            f"{path}: begins with {bytes(content[:20])!r}, expected P5, width, height and largest value"
        )
    width, height, largest = (int(number) for number in header.groups())
    if (width, height, largest) != (_WIDTH, _HEIGHT, 255):
        raise DataError(
            f"{path}: {width} x {height} pixels up to {largest}, expected {_WIDTH} x {_HEIGHT} up to 255"
        )
    pixels = np.frombuffer(content, np.uint8, offset=header.end())
    if len(pixels) != width * height:
        raise DataError(f"{path}: {len(pixels)} bytes of pixels, expected {width * height}")
    return pixels.reshape(height, width)
