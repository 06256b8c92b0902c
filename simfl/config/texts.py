"""Types of texts in a scenario: names of files, and labels.

A scenario from another machine may have no other texts than labels and names of shipped files
(`scenario.remote`). A field of plain `str` is refused there, so that a new field that names a file cannot be
forgotten.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

MAX_TEXT = 4096
"""Characters of a text."""


@dataclass(frozen=True, slots=True)
class NamesFile:
    """Marks a text that names a file or folder of this machine.

    >>> FileName.__metadata__[-1]  # the type of a field such as `file: FileName`
    NamesFile(shipped=<class 'tuple'>)
    """

    shipped: Callable[[], Iterable[str]] = tuple
    """Returns the texts that name a file of simfl instead."""


@dataclass(frozen=True, slots=True)
class NamesNothing:
    """Marks a text that is only compared, so that it cannot lead to a file.

    >>> Label.__metadata__[-1]  # the type of a field such as `column: Label`
    NamesNothing()
    """


# `scenario.remote` reads the last marker of an annotation, so a field may narrow `FileName` by another one.
FileName = Annotated[str, Field(max_length=MAX_TEXT), NamesFile()]
Label = Annotated[str, Field(max_length=MAX_TEXT), NamesNothing()]
