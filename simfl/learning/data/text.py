"""Text by its speakers, of the LEAF benchmark.

LEAF's scripts write Shakespeare's train/ and test/, files of {"users": [role], "num_samples": [n],
"user_data": {role: {"x": ["80 characters"], "y": ["the next one"]}}} (Caldas et al., "LEAF: A Benchmark for
Federated Settings"). Their entry `hierarchies`, the dramas, is not read.
"""

from pathlib import Path
from typing import Any, Literal

import numpy as np

from simfl.learning.data.dataset import I64, Array, DataError, Split
from simfl.learning.data.federated import side
from simfl.learning.data.published import Published

LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""LEAF's alphabet: a character's token and label is its index here."""
LENGTH = 80
"""Characters of a sample."""
_TOKENS = {letter: token for token, letter in enumerate(LETTERS)}


class Shakespeare(Published):
    """The next character of a role's lines: up to 1,129 natural users, 80 characters, 80 classes."""

    kind: Literal["shakespeare"] = "shakespeare"
    published = (
        "Shakespeare of the LEAF benchmark, Caldas et al., whose preprocess.sh writes train/ and test/"
    )
    labels = len(LETTERS)
    inner = ("data",)

    def read(self, folders: list[Path]) -> Split:
        """Return tokens int16, 160 bytes a sample.

        Roles are the natural users, numbered in the order of the files' names and, in a file, of its users.
        """
        train, test = self.files(folders, ("train/*.json",), ("test/*.json",))
        x_train, y_train, sizes = side(train, _lines)
        x_test, y_test, _ = side(test, _lines)
        owner = np.repeat(np.arange(len(sizes)), sizes)
        return Split(x_train, y_train, x_test, y_test, classes=self.labels, owner=owner)


def _lines(where: str, x: list[Any], y: list[Any]) -> tuple[Array, I64]:
    # Lengths first, as texts of different lengths would be no array.
    for length, texts in ((LENGTH, x), (1, y)):
        for index, text in enumerate(texts):
            if not isinstance(text, str) or len(text) != length:
                shown = f"{len(text)} characters" if isinstance(text, str) else type(text).__name__
                raise DataError(f"{where}: sample {index} has {shown}, expected {length} in a text")
    try:
        # int16 is the smallest type of tokens that `Split` allows; a module gets long integers
        # (`workspace.inputs`).
        lines = np.array([[_TOKENS[letter] for letter in text] for text in x], np.int16)
        return lines, np.array([_TOKENS[letter] for letter in y], np.int64)
    except KeyError as error:
        raise DataError(f"{where}: character {error.args[0]!r} is not one of LEAF's 80") from None
