from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.learning.data.common import cifar, pixels, read, refused

BATCHES = [f"data_batch_{i}.bin" for i in range(1, 6)]
RECORD = 3073
FIRST = pixels(2, 32, 32, 3)


def cifar10_files() -> dict[str, bytes]:
    files = {name: cifar(pixels(2, 32, 32, 3, seed=i), [i, 9 - i]) for i, name in enumerate(BATCHES)}
    return files | {"test_batch.bin": cifar(pixels(1, 32, 32, 3, seed=7), [7])}


def put(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


@pytest.mark.parametrize("inner", [".", "cifar-10-batches-bin", "cifar10", "cifar10/cifar-10-batches-bin"])
def test_cifar10_is_read_back(tmp_path: Path, inner: str) -> None:
    put(tmp_path / inner, cifar10_files())
    split = read("cifar10", tmp_path)
    assert split.classes == 10
    assert split.shape == (3, 32, 32)
    assert isinstance(split.x_train, np.ndarray)
    assert split.x_train.dtype == np.uint8
    assert split.x_train.flags.c_contiguous
    assert split.x_train.flags.writeable
    expected = np.concatenate([pixels(2, 32, 32, 3, seed=i) for i in range(5)])
    np.testing.assert_array_equal(split.x_train, expected.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(split.x_test, pixels(1, 32, 32, 3, seed=7).transpose(0, 3, 1, 2))
    assert split.y_train.tolist() == [0, 9, 1, 8, 2, 7, 3, 6, 4, 5]
    assert split.y_test.tolist() == [7]


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.data_too_large])
@given(
    st.lists(st.tuples(st.integers(0, 19), st.integers(0, 99)), min_size=1, max_size=3),
    arrays(np.uint8, (32, 32, 3), fill=st.integers(0, 255)),
)
def test_cifar100_is_read_back_by_its_fine_labels(labels: list[tuple[int, int]], image: np.ndarray) -> None:
    coarse, fine = zip(*labels, strict=True)
    images = np.stack([image + np.uint8(i) for i in range(len(labels))])
    with TemporaryDirectory() as folder:
        files = {
            "train.bin": cifar(images, coarse, fine),
            "test.bin": cifar(images[:1], coarse[:1], fine[:1]),
        }
        put(Path(folder) / "cifar-100-binary", files)
        split = read("cifar100", Path(folder))
    assert split.classes == 100
    assert split.y_train.tolist() == list(fine)
    assert split.y_test.tolist() == [fine[0]]
    np.testing.assert_array_equal(split.x_train, images.transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"", ["empty"]),
        (
            cifar(FIRST, [1, 2])[:-1],
            [f"{2 * RECORD - 1} bytes", f"multiple of {RECORD}", "3072 are left over"],
        ),
        (cifar(FIRST, [1, 2]) + b"\0", [f"{2 * RECORD + 1} bytes", "1 are left over"]),
        (cifar(FIRST, [1, 2], [3, 4]), [f"multiple of {RECORD}", "2 are left over"]),
        (cifar(FIRST, [1, 10]), ["label 10 of sample 1", "0 .. 9"]),
    ],
)
@pytest.mark.parametrize("name", [BATCHES[2], "test_batch.bin"])
def test_malformed(tmp_path: Path, name: str, content: bytes, parts: list[str]) -> None:
    put(tmp_path, cifar10_files() | {name: content})
    refused(lambda: read("cifar10", tmp_path), tmp_path / name, *parts)


def test_malformed_cifar100(tmp_path: Path) -> None:
    good = cifar(FIRST, [1, 2], [98, 99])
    put(tmp_path, {"train.bin": cifar(FIRST, [1, 2], [99, 100]), "test.bin": good})
    refused(lambda: read("cifar100", tmp_path), tmp_path / "train.bin", "label 100 of sample 1", "0 .. 99")
    put(tmp_path, {"train.bin": cifar(FIRST, [1, 2])})
    refused(lambda: read("cifar100", tmp_path), tmp_path / "train.bin", "multiple of 3074")


@pytest.mark.parametrize(
    ("name", "pickled"),
    [
        ("cifar10", "cifar-10-batches-py/data_batch_1"),
        ("cifar10", "data_batch_1"),
        ("cifar10", "cifar10/batches.meta"),
        ("cifar100", "cifar-100-python/train"),
        ("cifar100", "cifar100/meta"),
    ],
)
def test_the_python_version_is_not_read(tmp_path: Path, name: str, pickled: str) -> None:
    put((tmp_path / pickled).parent, {Path(pickled).name: b"\x80\x02}q\x01."})
    refused(lambda: read(name, tmp_path), pickled.split("/")[0], "Python version", "binary version", ".bin")


def test_a_batch_is_missing(tmp_path: Path) -> None:
    files = cifar10_files()
    del files["data_batch_4.bin"]
    put(tmp_path, files | {"batches.meta": b""})
    text = refused(
        lambda: read("cifar10", tmp_path), "data_batch_4.bin", tmp_path, "CIFAR-10, binary version"
    )
    assert "data_batch_3.bin" not in text
    assert "Python" not in text
