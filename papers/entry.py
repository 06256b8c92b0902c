"""A table or figure of a paper, and the result of running it again.

Invariant: the paper's values are typed in, with their place; ours are computed by `Entry.run` and stored. Two
numbers are compared by the relative difference ours / paper - 1. An upper limit, such as an O(), is kept if
ours is at most that. An order or a fact is written in the same words on both sides, and compared as text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Value = float | str | None

Compare = Literal["relative", "order", "at most", "at least", "none"]

Basis = Literal["by construction", "fitted", "predicted"]
"""The worth of an agreement, in ascending order. by construction: the same formula on both sides, a sum or an
order that follows from cells beside it, a limit that holds before anything is run, or what the entry itself
brings about; fitted: the paper's value was used to set a parameter; predicted: it was not."""


@dataclass(frozen=True)
class Cell:
    """A value of a table, the paper's beside ours."""

    label: str
    paper: Value
    """The paper's value; None if it states none."""
    ours: Value
    unit: str = ""
    compare: Compare = "relative"
    """How the two are compared."""
    bound: float | None = None
    """Largest absolute relative difference of a reproduced value; of a limit, the excess that is accepted."""
    remark: str = ""
    basis: Basis = "predicted"
    """Worth of an agreement, if the cell is judged."""

    @property
    def difference(self) -> float | None:
        """ours / paper - 1; None for cells that are compared otherwise.

        Raises:
            ValueError: One of the two is not a number, or the paper's is zero.
        """
        if self.compare != "relative":
            return None
        paper, ours = self._numbers
        if not paper:
            raise ValueError(f"{self.label}: {ours} cannot be compared with {paper}")
        return ours / paper - 1

    @property
    def _numbers(self) -> tuple[float, float]:
        if not (isinstance(self.paper, int | float) and isinstance(self.ours, int | float)):
            raise ValueError(f"{self.label}: {self.ours!r} cannot be compared with {self.paper!r}")
        return self.paper, self.ours

    @property
    def agrees(self) -> bool | None:
        """True if the cell agrees with the paper; None if it is not judged."""
        if self.compare == "order":
            return self.ours == self.paper
        if self.compare == "at most":
            paper, ours = self._numbers
            return ours <= paper + (self.bound or 0)
        if self.compare == "at least":
            paper, ours = self._numbers
            return ours >= paper - (self.bound or 0)
        difference = self.difference
        return None if difference is None or self.bound is None else abs(difference) <= self.bound


@dataclass(frozen=True)
class Line:
    """A line of a chart."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Chart:
    """The values of a figure."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    log_x: int | None = None
    """Base of a logarithmic axis; None for a linear one."""
    log_y: int | None = None
    """Base of a logarithmic axis; None for a linear one."""


@dataclass(frozen=True)
class Evidence:
    """The result of an entry's run.

    Attributes:
        cells: The values beside the paper's.
        charts: Figures of ours.
        on: Data and models of the run, if they differ from the entry's; else empty.
    """

    cells: tuple[Cell, ...]
    charts: tuple[Chart, ...] = ()
    on: str = ""
    """Data of the run, in words, if they are not the entry's."""


@dataclass(frozen=True)
class Place:
    """The folders in which entries run."""

    root: Path
    """Root of a checkout."""
    kept: Path | None = None
    """Folder that keeps what is done of a run of entries; None keeps nothing."""
    jobs: int = 1
    """Cells of a study at a time, if they are kept."""

    def study(self, name: str) -> Path:
        """Return the file of a table's study."""
        return self.root / "scenarios" / "papers" / f"{name}.yaml"

    @property
    def results(self) -> Path:
        """Folder of the results."""
        return self.root / "docs" / "reproduction"

    @property
    def page(self) -> Path:
        """File of the overview of all papers."""
        return self.root / "docs" / "reproduction.md"


@dataclass(frozen=True)
class Entry:
    """A table or figure of a paper."""

    name: str
    paper: str
    """Short name of the paper."""
    where: str
    """Place in the paper, such as `Table 4`."""
    title: str
    """The content, in a few words."""
    on: str
    """Data and models of our run."""
    how: str
    """Rule of comparison."""
    run: Callable[[Place], Evidence]
    disagreement: str = ""
    """Reasons for differences, without a number of ours: numbers are in cells and their remarks."""
    seed: int = 1
    """Seed of the entry's draws; a study has seeds of its own."""
    at: Callable[[Mapping[str, float]], list[str]] | None = None
    """Predictions for a setting that is not in the paper."""

    @property
    def command(self) -> str:
        """The command that runs it and stores its result."""
        return f"simfl reproduce {self.name}"
