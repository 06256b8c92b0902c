import re
from pathlib import Path

import numpy as np
import pytest

from simfl.learning.data import DATASETS, published
from tests.learning.data.common import idx_images, idx_labels, load, pixels, read, refused, rng

NEED_ROOT = sorted({*DATASETS} - {"digits", "synthetic", "npz"})


def put_mnist(folder: Path, label: int, *, test: bool = True) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for side in ("train", "t10k")[: 1 + test]:
        (folder / f"{side}-images-idx3-ubyte").write_bytes(idx_images(pixels(1, 28, 28)))
        (folder / f"{side}-labels-idx1-ubyte").write_bytes(idx_labels([label]))


@pytest.fixture(autouse=True)
def _no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIMFL_DATA", raising=False)


def test_every_data_set_has_a_description() -> None:
    assert set(NEED_ROOT) == {
        "mnist",
        "fashion_mnist",
        "cifar10",
        "cifar100",
        "femnist",
        "shakespeare",
        "shakespeare_plays",
        "att_faces",
        "gld23k",
    }
    for name in DATASETS:
        for text in (dict(DATASETS.listed())[name], getattr(DATASETS[name], "published", "ours")):
            assert text
            assert "\n" not in text
            assert not re.search(r"://|www\.", text)


def test_the_folder_of_its_name_goes_before_the_root_itself(tmp_path: Path) -> None:
    put_mnist(tmp_path, 1)
    assert read("mnist", tmp_path).y_train.tolist() == [1]
    put_mnist(tmp_path / "mnist", 2)
    assert read("mnist", tmp_path).y_train.tolist() == [2]
    assert read("fashion_mnist", tmp_path).y_train.tolist() == [1]


def test_folders_are_not_mixed(tmp_path: Path) -> None:
    put_mnist(tmp_path, 1)
    put_mnist(tmp_path / "fashion_mnist", 2, test=False)
    text = refused(lambda: read("fashion_mnist", tmp_path), "t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte")
    assert f"{tmp_path / 'fashion_mnist'}, where the others are" in text
    assert "Fashion-MNIST" in text
    assert "train-" not in text


def test_the_root_given_goes_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_mnist(tmp_path / "a", 1)
    put_mnist(tmp_path / "b", 2)
    monkeypatch.setenv("SIMFL_DATA", str(tmp_path / "b"))
    assert load("mnist", rng()).y_train.tolist() == [2]
    assert load("mnist", rng(), tmp_path / "a").y_train.tolist() == [1]


def test_home_may_be_written_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_mnist(tmp_path / "sets", 4)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load("mnist", rng(), Path("~/sets")).y_train.tolist() == [4]


@pytest.mark.parametrize("name", [name for name in NEED_ROOT if name != "gld23k"])
def test_nothing_is_there(tmp_path: Path, name: str) -> None:
    text = refused(lambda: read(name, tmp_path), f"{name}: ", DATASETS[name].published, "not found in")
    assert f"{tmp_path / name}" in text
    assert f" or {tmp_path};" in text or f" or {tmp_path / '.'};" in text


def test_all_files_and_folders_are_named(tmp_path: Path) -> None:
    text = refused(lambda: read("mnist", tmp_path))
    names = [f"{s}-{k}-ubyte" for s in ("train", "t10k") for k in ("images-idx3", "labels-idx1")]
    assert text == (
        f"mnist: {', '.join(names)} not found in {tmp_path / 'mnist'} or {tmp_path}; "
        "published as the MNIST database of handwritten digits, LeCun, Cortes, Burges"
    )


@pytest.mark.parametrize("name", NEED_ROOT)
@pytest.mark.parametrize("empty", [False, True])
def test_there_is_no_root(name: str, empty: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "SYSTEM", tmp_path)
    if empty:
        monkeypatch.setenv("SIMFL_DATA", "")
    parts = ("`data.root`", "learning.data.root", "SIMFL_DATA", DATASETS[name].published)
    refused(lambda: load(name, rng()), name, *parts)


def test_the_root_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(lambda: read("mnist", tmp_path / "none"), f"data.root {tmp_path / 'none'} is not a folder")
    monkeypatch.setenv("SIMFL_DATA", str(tmp_path / "none"))
    refused(lambda: load("mnist", rng()), f"SIMFL_DATA {tmp_path / 'none'} is not a folder")


def test_the_systems_package_is_found_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels tell where the images are from: 1 of the package, 2 of SIMFL_DATA."""
    monkeypatch.setattr(published, "SYSTEM", tmp_path / "system")
    text = refused(lambda: load("fashion_mnist", rng()), "install Debian's package dataset-fashion-mnist")
    assert "`data.root`" in text
    put_mnist(tmp_path / "system/usr/share/datasets/fashion-mnist", 1)
    assert load("fashion_mnist", rng()).y_train.tolist() == [1]
    monkeypatch.setenv("SIMFL_DATA", str(tmp_path))
    assert load("fashion_mnist", rng()).y_train.tolist() == [1]
    put_mnist(tmp_path / "fashion_mnist", 2)
    assert load("fashion_mnist", rng()).y_train.tolist() == [2]
    # A root that a scenario names is searched alone.
    (tmp_path / "empty").mkdir()
    refused(lambda: read("fashion_mnist", tmp_path / "empty"), "not found in")
    refused(lambda: load("mnist", rng()), "not found in")


@pytest.mark.fashion_mnist
def test_the_package_is_fashion_mnist() -> None:
    split = load("fashion_mnist", rng())
    assert (split.x_train.shape, split.x_test.shape) == ((60_000, 1, 28, 28), (10_000, 1, 28, 28))
    assert np.bincount(split.y_train).tolist() == [6_000] * 10
    # An ankle boot, by its authors' table, and 0 .. 255 of grey.
    assert (split.y_train[0], split.x_train[np.array([0])].max()) == (9, 255)
