"""Recorded users, devices and links in files of others, as tables that a scenario can name.

All that is wrong with a file ends in one ScenarioError, which names the file and the place in it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_PROBLEMS = 20  # of one file that are reported


@dataclass(frozen=True)
class Table:
    """Rows under the names of their columns; each column has values of one type."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]


@dataclass(frozen=True)
class Imported:
    """The tables of an import by name, and in words what was found and what was dropped."""

    tables: Mapping[str, Table]
    found: str
