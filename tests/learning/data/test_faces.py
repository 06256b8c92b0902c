from pathlib import Path

import numpy as np
import pytest

from tests.learning.data.common import Array, pgm, read, refused

RASTER = bytes(92 * 112)
BROKEN = "s7/10.pgm"


def portrait(person: int, number: int) -> Array:
    return np.random.default_rng([person, number]).integers(0, 256, (112, 92)).astype(np.uint8)


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("faces")
    for person in range(1, 41):
        (root / f"s{person}").mkdir()
        for number in range(1, 11):
            content = pgm(92, 112, portrait(person, number).tobytes())
            (root / f"s{person}/{number}.pgm").write_bytes(content)
    return root


@pytest.mark.ci
def test_faces_are_read_back(faces: Path) -> None:
    split = read("att_faces", faces)
    assert split.classes == 40
    assert split.shape == (1, 112, 92)
    assert isinstance(split.x_train, np.ndarray)
    assert split.x_train.dtype == np.uint8
    train = [(person, number) for person in range(1, 41) for number in range(1, 9)]
    test = [(person, number) for person in range(1, 41) for number in (9, 10)]
    np.testing.assert_array_equal(split.x_train[:, 0], [portrait(*key) for key in train])
    np.testing.assert_array_equal(split.x_test[np.arange(80)][:, 0], [portrait(*key) for key in test])
    assert split.y_train.tolist() == [person - 1 for person, _ in train]
    assert split.y_test.tolist() == [person - 1 for person, _ in test]


@pytest.mark.parametrize("inner", ["att_faces", "orl_faces", "att_faces/orl_faces"])
def test_the_folder_that_an_archive_unpacks_to(faces: Path, tmp_path: Path, inner: str) -> None:
    (tmp_path / inner).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / inner).symlink_to(faces, target_is_directory=True)
    assert len(read("att_faces", tmp_path).y_train) == 320


@pytest.mark.parametrize(
    "head",
    [
        b"P5\n92 112\n255\n",
        b"P5 92 112 255 ",
        b"P5\r\n92\t112\r\n255\t",
        b"P5\n# by hand\n92 112\n# 13 37\n255\n",
        b"P5# at once\n92#after a number\n 112\n\n##\n255\n",
    ],
)
@pytest.mark.parametrize("first", [b"\x07", b"#", b"\n"])
def test_headers(one: Path, head: bytes, first: bytes) -> None:
    one.write_bytes(head + first + RASTER[1:])
    split = read("att_faces", one.parents[1])
    assert split.x_test[np.array([13])].tobytes() == first + RASTER[1:]


@pytest.fixture
def one(faces: Path) -> Path:
    """The file to be changed, in a set that is good otherwise."""
    return faces / BROKEN


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"", ["empty"]),
        (pgm(92, 112, RASTER[:-1]), ["10303 bytes of pixels", "expected 10304"]),
        (pgm(92, 112, RASTER + b"\0"), ["10305 bytes of pixels", "expected 10304"]),
        (pgm(112, 92, RASTER), ["112 x 92 pixels up to 255", "expected 92 x 112"]),
        (pgm(92, 112, RASTER, maxval=254), ["up to 254", "up to 255"]),
        (pgm(92, 112, RASTER * 2, maxval=65535), ["up to 65535"]),
        (b"P2\n92 112\n255\n" + RASTER, ["begins with b'P2", "expected P5"]),
        (b"P5\n92\n", ["begins with b'P5", "expected P5"]),
        (b"P5\n92 -112 255\n" + RASTER, ["begins with b'P5", "expected P5"]),
        (b"P5\n# 92 112 255\n" + RASTER, ["begins with b'P5", "expected P5"]),
        (b"P5\n" + b"9" * 9000 + b" 112 255\n", ["begins with b'P5", "expected P5"]),
    ],
)
def test_malformed(one: Path, content: bytes, parts: list[str]) -> None:
    one.write_bytes(content)
    refused(lambda: read("att_faces", one.parents[1]), one, *parts)


def test_portraits_are_missing(tmp_path: Path) -> None:
    (tmp_path / "s1").mkdir()
    (tmp_path / "s1/1.pgm").write_bytes(pgm(92, 112, RASTER))
    refused(lambda: read("att_faces", tmp_path), "s1/2.pgm", "and 394 more", tmp_path, "AT&T")
