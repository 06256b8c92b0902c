import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.learning.data.common import dump, leaf, read, refused, writers

User = tuple[list[list[float]], list[int]]
FILE = "all_data_0_niid_0_keep_0_train_9.json"


def writer(seed: int, samples: int) -> User:
    levels = np.random.default_rng(seed).integers(0, 256, (samples, 784))
    return (levels / 255).tolist(), [(seed + 20 * i) % 62 for i in range(samples)]


TRAIN = {"f0001_41": writer(1, 2), "f0000_14": writer(2, 3)}
OTHER = {"f0003_02": writer(3, 1)}
TEST = {"f0009_00": writer(4, 2)}


def put(root: Path) -> None:
    dump(root / "train" / FILE, leaf(TRAIN))
    dump(root / "train" / "all_data_1_niid_0_keep_0_train_9.json", leaf(OTHER))
    dump(root / "test" / "all_data_0_niid_0_keep_0_test_9.json", leaf(TEST))


@pytest.mark.parametrize("inner", [".", "femnist", "data", "femnist/data"])
def test_femnist_is_read_back(tmp_path: Path, inner: str) -> None:
    put(tmp_path / inner)
    split = read("femnist", tmp_path)
    assert split.classes == 62
    assert split.shape == (1, 28, 28)
    users = [*TRAIN.values(), *OTHER.values()]
    assert isinstance(split.x_train, np.ndarray)
    assert split.x_train.dtype == np.float32
    published = np.concatenate([np.array(x) for x, _ in users]).astype(np.float32)
    np.testing.assert_array_equal(split.x_train.reshape(-1, 784), published)
    assert split.y_train.tolist() == [label for _, y in users for label in y]
    assert split.y_test.tolist() == TEST["f0009_00"][1]
    assert split.owner is not None
    assert split.owner.tolist() == [0, 0, 1, 1, 1, 2]
    assert writers(split) == 3


def test_a_user_without_samples_owns_nothing_and_is_not_counted(tmp_path: Path) -> None:
    put(tmp_path)
    dump(tmp_path / "train" / FILE, leaf({"none": ([], []), **TRAIN}))
    split = read("femnist", tmp_path)
    assert writers(split) == 3
    assert split.owner is not None
    assert split.owner.tolist() == [0, 0, 1, 1, 1, 2]


def test_writers_may_be_in_both_sides(tmp_path: Path) -> None:
    put(tmp_path)
    dump(tmp_path / "test" / "all_data_0_niid_0_keep_0_test_9.json", leaf(TRAIN))
    assert writers(read("femnist", tmp_path)) == 3


Change = Callable[[dict[str, Any]], object]
NAME = "f0000_14"


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (lambda c: c.pop("users"), ["no 'users'", "a list"]),
        (lambda c: c.pop("num_samples"), ["no 'num_samples'", "a list"]),
        (lambda c: c.pop("user_data"), ["no 'user_data'", "an object"]),
        (lambda c: c.update(user_data=[]), ["no 'user_data'", "an object"]),
        (lambda c: c["user_data"].pop(NAME), ["user_data has no 'f0000_14'"]),
        (
            lambda c: c["user_data"].update(who={"x": [], "y": []}),
            ["user_data has 'who'", "not one of its users"],
        ),
        (lambda c: c["users"].append(["a list"]), ["3 users", "2 numbers"]),
        (lambda c: c.update(users=["f0001_41", ["a list"]]), ["user_data has no ['a list']"]),
        (lambda c: c["num_samples"].append(1), ["2 users", "3 numbers"]),
        (lambda c: c["num_samples"].__setitem__(1, 4), [NAME, "3 samples and 3 labels", "num_samples is 4"]),
        (lambda c: c["user_data"][NAME]["y"].append(1), [NAME, "3 samples and 4 labels"]),
        (lambda c: c["user_data"][NAME]["x"].pop(), [NAME, "2 samples and 3 labels"]),
        (lambda c: c["user_data"][NAME].pop("x"), [NAME, "no 'x'"]),
        (lambda c: c["user_data"][NAME].update(y=1), [NAME, "no 'y'"]),
        (lambda c: c["user_data"].update({NAME: None}), [NAME, "no 'x'"]),
        (lambda c: c["user_data"][NAME]["x"][2].pop(), [NAME, "vector 2 has length 783, expected 784"]),
        (lambda c: c["user_data"][NAME]["x"].__setitem__(1, 0.5), [NAME, "vector 1 has length 1"]),
        (lambda c: c["user_data"][NAME]["x"][1].__setitem__(5, float("nan")), [NAME, "x[1, 5] is nan"]),
        (lambda c: c["user_data"][NAME]["x"][1].__setitem__(5, float("-inf")), [NAME, "x[1, 5] is -inf"]),
        (lambda c: c["user_data"][NAME]["x"][1].__setitem__(5, 1e300), [NAME, "x[1, 5] is 1e+300"]),
        (lambda c: c["user_data"][NAME]["x"][1].__setitem__(5, 10**400), [NAME, "x has other values"]),
        (lambda c: c["user_data"][NAME]["x"][1].__setitem__(5, "0.5"), [NAME, "x has other values"]),
        (lambda c: c["user_data"][NAME]["x"][1].__setitem__(5, None), [NAME, "x has other values"]),
        (lambda c: c["user_data"][NAME]["x"][1].__setitem__(5, [0.5]), [NAME, "x has other values"]),
        (lambda c: c["user_data"][NAME]["y"].__setitem__(1, 62), [NAME, "label 62 of sample 1", "0 .. 61"]),
        (lambda c: c["user_data"][NAME]["y"].__setitem__(1, -1), [NAME, "label -1 of sample 1"]),
        (lambda c: c["user_data"][NAME]["y"].__setitem__(1, 1.0), [NAME, "y has other values than integers"]),
        (lambda c: c["user_data"][NAME]["y"].__setitem__(1, "1"), [NAME, "y has other values than integers"]),
    ],
)
def test_malformed(tmp_path: Path, change: Change, parts: list[str]) -> None:
    put(tmp_path)
    content = copy.deepcopy(leaf(TRAIN))
    change(content)
    path = dump(tmp_path / "train" / FILE, content)
    refused(lambda: read("femnist", tmp_path), path, *parts)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "empty"),
        ("{", "not JSON"),
        (json.dumps(leaf(TRAIN))[:-100], "not JSON"),
        (json.dumps(leaf(TRAIN)) + "}", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("9" * 5000, "not JSON"),
        ("[]", "no 'users'"),
    ],
    ids=["empty", "brace", "truncated", "trailing", "deep", "digits", "list"],
)
@pytest.mark.parametrize("side", ["train", "test"])
def test_no_json_of_users(tmp_path: Path, side: str, text: str, part: str) -> None:
    put(tmp_path)
    path = dump(tmp_path / side / "another.json", text)
    refused(lambda: read("femnist", tmp_path), path, part)


def test_no_text(tmp_path: Path) -> None:
    put(tmp_path)
    path = tmp_path / "train" / FILE
    path.write_bytes(b'{"users": ["\xff"]}')
    refused(lambda: read("femnist", tmp_path), path, "not UTF-8", "byte 12")


def test_a_user_is_in_one_file(tmp_path: Path) -> None:
    put(tmp_path)
    path = dump(tmp_path / "train" / "all_data_2.json", leaf(TRAIN))
    refused(lambda: read("femnist", tmp_path), path, "f0001_41", tmp_path / "train" / FILE)


def test_no_samples_at_all(tmp_path: Path) -> None:
    dump(tmp_path / "train" / FILE, leaf({"none": ([], [])}))
    dump(tmp_path / "test" / FILE, leaf(TEST))
    refused(lambda: read("femnist", tmp_path), tmp_path / "train", "no samples")


def test_a_side_is_missing(tmp_path: Path) -> None:
    dump(tmp_path / "femnist" / "train" / FILE, leaf(TRAIN))
    refused(lambda: read("femnist", tmp_path), "test/*.json", tmp_path / "femnist", "LEAF")
