"""Numbers that each user has of its own: a number, a distribution, or a column of a CSV file.

Invariant: a user's number does not depend on how many users there are.
"""

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Discriminator, Field, Tag

from simfl.config.blocks import (
    GREATEST,
    LEAST,
    MAIN_KEYS,
    Block,
    Drawn,
    Draws,
    Fixed,
    Mbps,
    NonNegative,
    Positive,
    shorthand,
)
from simfl.config.csv_files import read_column
from simfl.config.quantities import unit
from simfl.config.texts import FileName, Label
from simfl.random_streams import Streams

Assign = Literal["modulo", "draw"]


class FileColumn(Block):
    """A column of a CSV file with a header, in which each line is an entry: `{file: PATH, column: NAME}`.

    A user has the same entry in all columns of a file, so that what was measured together stays together.
    A relative path is of the scenario file's folder.
    """

    kind: Literal["file"] = "file"
    file: FileName
    """The CSV file's path."""
    column: Label
    """The column's name in the header."""
    assign: Assign = "modulo"
    """`modulo`: user u has entry u mod the number of entries; `draw`: one drawn for it."""
    scale: Positive = 1.0
    """The factor of all values, such as 0.001 where the file has kbit/s."""


_MAIN_KEYS = {**MAIN_KEYS, "file": "file"}
PerUser = Annotated[
    Fixed | Drawn | FileColumn, Field(discriminator="kind"), shorthand(fixed="value", **_MAIN_KEYS)
]

# For a field whose bounds are not those of `Fixed`, and whose number stays one in the resolved scenario:
# `Annotated[Annotated[Mbps, NUMBER] | Varied, NUMBER_OR_VARIED]`.
NUMBER = Tag("number")
Varied = Annotated[Drawn | FileColumn, Field(discriminator="kind"), shorthand(**_MAIN_KEYS), Tag("varied")]
NUMBER_OR_VARIED = Discriminator(lambda value: "number" if isinstance(value, int | float) else "varied")
Rates = Annotated[Annotated[Mbps, NUMBER] | Varied, NUMBER_OR_VARIED, unit("Mbit/s")]
Latencies = Annotated[Annotated[NonNegative, NUMBER] | Varied, NUMBER_OR_VARIED, unit("s")]


def for_users(
    spec: float | Fixed | Drawn | FileColumn,
    users: int,
    streams: Streams,
    *purpose: str | int,
    key: str,
    least: float = LEAST,
    greatest: float = GREATEST,
) -> Draws:
    """Return each user's number, float64 [users].

    purpose: the stream that draws of a distribution come from; they are held within the bounds.
    key: of the scenario, where the number is given. ScenarioError if a file is missing, malformed, or has a
    value beyond the bounds.
    """
    if isinstance(spec, float | int):
        return np.full(users, float(spec))
    if isinstance(spec, FileColumn):
        entries = read_column(spec.file, spec.column, least, greatest, spec.scale, key)
        return entries[entries_of(spec.assign, len(entries), users, streams)]
    return np.clip(spec.draw(streams.rng(*purpose), users), least, greatest)


def entries_of(assign: Assign, entries: int, users: int, streams: Streams) -> NDArray[np.int64]:
    """Return the entry of a file of so many that each user has, int64 [users]."""
    if assign == "modulo":
        return np.arange(users) % entries
    # Named by no file, whose name, unlike its content, is no part of a run's identity.
    drawn = streams.rng("entry", entries).random(users)
    return (drawn * entries).astype(np.int64)
