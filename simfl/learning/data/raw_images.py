"""Images that are published as raw pixels: IDX files (MNIST), CIFAR's records, and PGM files (AT&T faces).

IDX, gzipped or not: two zero bytes, a type (8: unsigned bytes), the number of dimensions, each dimension as a
big-endian 32-bit integer, and the values, the last dimension running fastest (LeCun, Cortes, Burges, "The
MNIST database of handwritten digits"). A record of CIFAR's binary version: a label byte (CIFAR-100: a coarse
one, then a fine one) and 1024 pixels of red, green and blue each, row by row (Krizhevsky, "Learning Multiple
Layers of Features from Tiny Images", 2009). Its Python version is pickled and is never read, since unpickling
executes code of the file. Raw PGM: "P5", width, height and the largest value in decimal, with white space or
comments between them, one white space, and the pixels row by row (Poskanzer's pgm, 1991).
"""

import math
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from simfl.learning.data.dataset import I64, U8, DataError, Split, check_labels
from simfl.learning.data.published import Published, read

_IDX_UNSIGNED_BYTES = 8
_CIFAR_PIXELS = 3 * 32 * 32
_PEOPLE, _PORTRAITS, _TEST_PORTRAITS = 40, 10, 2
FACES = tuple(f"s{s}/{i}.pgm" for s in range(1, _PEOPLE + 1) for i in range(1, _PORTRAITS + 1))
"""The files of AT&T's faces: a folder for each person."""
_FACE_HEIGHT, _FACE_WIDTH = 112, 92
_PGM_GAP = rb"(?:\s|#[^\r\n]*[\r\n])+"
# One white space ends the header: a second one would be a pixel. Nine digits bound the numbers of a damaged
# one.
_PGM_HEADER = re.compile(rb"P5" + (_PGM_GAP + rb"(\d{1,9})") * 3 + rb"\s")


class Mnist(Published):
    """Handwritten digits: 60,000 to train, 10,000 to test, 1x28x28, 10 classes."""

    kind: Literal["mnist"] = "mnist"
    published = "the MNIST database of handwritten digits, LeCun, Cortes, Burges"
    size_bytes = 70_000 * 784

    def read(self, folders: list[Path]) -> Split:
        wanted = [
            tuple(f"{side}-{kind}{dash}{idx}-ubyte{end}" for end in ("", ".gz") for dash in "-.")
            for side in ("train", "t10k")
            for kind, idx in (("images", "idx3"), ("labels", "idx1"))
        ]
        paths = [listed[0] for listed in self.files(folders, *wanted)]
        (x_train, y_train), (x_test, y_test) = _idx_samples(*paths[:2]), _idx_samples(*paths[2:])
        return Split(x_train, y_train, x_test, y_test, classes=self.labels)


class FashionMnist(Mnist):
    """Pictures of clothes: 60,000 to train, 10,000 to test, 1x28x28, 10 classes."""

    kind: Literal["fashion_mnist"] = "fashion_mnist"  # type: ignore[assignment]
    published = "Fashion-MNIST, Xiao, Rasul, Vollgraf, Zalando Research"
    package = "dataset-fashion-mnist", "usr/share/datasets/fashion-mnist"


def _idx_samples(images: Path, labels: Path) -> tuple[U8, I64]:
    x = read_idx(images, 28, 28).reshape(-1, 1, 28, 28)
    y = read_idx(labels).astype(np.int64)
    if len(x) != len(y):
        raise DataError(f"{images}: {len(x)} images, but {len(y)} labels in {labels}")
    check_labels(str(labels), y, classes=10)
    return x, y


def read_idx(path: Path, *shape: int) -> U8:
    """Return the unsigned bytes [n, *shape] of an IDX file.

    Raises:
        DataError: It is no such file, its values have another shape, or their number differs from its header.
    """
    content = read(path)
    dimensions = 1 + len(shape)
    magic, expected = bytes(content[:4]), bytes((0, 0, _IDX_UNSIGNED_BYTES, dimensions))
    if magic != expected:
        raise DataError(
            f"{path}: begins with {magic.hex(' ')}, expected {expected.hex(' ')} (IDX, unsigned bytes, "
            f"{dimensions} dimensions)"
        )
    header_bytes = 4 + 4 * dimensions
    if len(content) < header_bytes:
        raise DataError(f"{path}: {len(content)} bytes, expected a header of {header_bytes}")
    # Big-endian, by the format. Python's integers: a product of damaged sizes cannot wrap around.
    sizes = struct.unpack(f">{dimensions}I", content[4:header_bytes])
    if sizes[1:] != shape or not sizes[0]:
        raise DataError(f"{path}: dimensions {list(sizes)}, expected {['1 or more', *shape]}")
    if len(content) - header_bytes != math.prod(sizes):
        raise DataError(
            f"{path}: {len(content) - header_bytes} bytes after the header, expected {math.prod(sizes)} for "
            f"dimensions {list(sizes)}"
        )
    return np.frombuffer(content, np.uint8, offset=header_bytes).reshape(sizes)


class Cifar10(Published):
    """Small photographs: 50,000 to train, 10,000 to test, 3x32x32, 10 classes."""

    kind: Literal["cifar10"] = "cifar10"
    published = "CIFAR-10, binary version, Krizhevsky, Nair, Hinton, University of Toronto"
    inner = ("cifar-10-batches-bin",)
    size_bytes = 60_000 * _CIFAR_PIXELS
    train: ClassVar[tuple[str, ...]] = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
    """Files of training samples."""
    test: ClassVar[str] = "test_batch.bin"
    """File of test samples."""
    pickled: ClassVar[tuple[str, ...]] = ("cifar-10-batches-py", "batches.meta", "data_batch_1")
    """Names by which the Python version is recognised."""
    label_bytes: ClassVar[int] = 1
    """Bytes of labels in a record, the last of which is used."""

    def read(self, folders: list[Path]) -> Split:
        names = (*self.train, self.test)
        python = [path for folder in folders for name in self.pickled if (path := folder / name).exists()]
        # A likely mistake gets its own message: both versions are published, in archives of similar names.
        if python and not any((folder / name).exists() for folder in folders for name in names):
            raise DataError(
                f"{self.kind}: {python[0]} is of the Python version, which is pickled; the binary version is "
                f"needed ({', '.join(names)}), published as {self.published}"
            )
        paths = [listed[0] for listed in self.files(folders, *((name,) for name in names))]
        train = _cifar_samples(paths[:-1], self.label_bytes, self.labels)
        return Split(*train, *_cifar_samples(paths[-1:], self.label_bytes, self.labels), classes=self.labels)


class Cifar100(Cifar10):
    """Small photographs: 50,000 to train, 10,000 to test, 3x32x32, 100 classes."""

    kind: Literal["cifar100"] = "cifar100"  # type: ignore[assignment]
    published = "CIFAR-100, binary version, Krizhevsky, Nair, Hinton, University of Toronto"
    inner = ("cifar-100-binary",)
    train, test = ("train.bin",), "test.bin"
    pickled = ("cifar-100-python", "meta")
    label_bytes = 2
    labels = 100


def _cifar_samples(paths: Sequence[Path], label_bytes: int, classes: int) -> tuple[U8, I64]:
    records = [_records(path, label_bytes, classes) for path in paths]
    images = np.concatenate([r[:, label_bytes:] for r in records])
    # CIFAR-100 has a coarse label before the fine one.
    labels = np.concatenate([r[:, label_bytes - 1] for r in records])
    return images.reshape(-1, 3, 32, 32), labels.astype(np.int64)


def _records(path: Path, label_bytes: int, classes: int) -> U8:
    content = read(path)
    record_bytes = label_bytes + _CIFAR_PIXELS
    if len(content) % record_bytes:
        raise DataError(
            f"{path}: {len(content)} bytes, expected a multiple of {record_bytes} ({label_bytes} of labels "
            f"and {_CIFAR_PIXELS} of pixels a record); {len(content) % record_bytes} are left over"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, record_bytes)
    check_labels(str(path), records[:, label_bytes - 1].astype(np.int64), classes)
    return records


class AttFaces(Published):
    """Portraits of 40 people: 320 to train, the last two of each person to test, 1x112x92, 40 classes."""

    kind: Literal["att_faces"] = "att_faces"
    published = "the Database of Faces (formerly the ORL Database of Faces), AT&T Laboratories Cambridge"
    size_bytes = 400 * _FACE_HEIGHT * _FACE_WIDTH
    labels = 40
    inner = ("att_faces", "orl_faces")

    def read(self, folders: list[Path]) -> Split:
        """Return pixels uint8; each person is a class, s1 being 0. The split is simfl's, as none is
        published."""
        faces = self.files(folders, *((name,) for name in FACES))
        images = np.stack([_pixels(path) for (path,) in faces]).reshape(-1, 1, _FACE_HEIGHT, _FACE_WIDTH)
        people = np.repeat(np.arange(_PEOPLE), _PORTRAITS)
        test = np.arange(len(images)) % _PORTRAITS >= _PORTRAITS - _TEST_PORTRAITS
        return Split(images[~test], people[~test], images[test], people[test], classes=_PEOPLE)


def _pixels(path: Path) -> U8:
    content = read(path)
    header = _PGM_HEADER.match(content)
    if not header:
        raise DataError(
            f"{path}: begins with {bytes(content[:20])!r}, expected P5, width, height and largest value"
        )
    width, height, largest = (int(number) for number in header.groups())
    if (width, height, largest) != (_FACE_WIDTH, _FACE_HEIGHT, 255):
        raise DataError(
            f"{path}: {width} x {height} pixels up to {largest}, expected {_FACE_WIDTH} x {_FACE_HEIGHT} "
            "up to 255"
        )
    pixels = np.frombuffer(content, np.uint8, offset=header.end())
    if len(pixels) != width * height:
        raise DataError(f"{path}: {len(pixels)} bytes of pixels, expected {width * height}")
    return pixels.reshape(height, width)
