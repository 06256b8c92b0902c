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
    """One value of a table, the paper's beside ours.

    bound: the largest absolute relative difference that counts as reproduced, where there is one to keep;
    where compared by `at most` or `at least`, by how much the limit may be missed. basis: of a cell that is
    judged.
    """

    label: str
    paper: Value
    ours: Value
    unit: str = ""
    compare: Compare = "relative"
    bound: float | None = None
    remark: str = ""
    basis: Basis = "predicted"

    @property
    def difference(self) -> float | None:
        """ours / paper - 1 of cells that are compared so.

        Raises:
            ValueError: one of the two is no number, or the paper's is zero.
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
        """Whether it is as the paper has it; None where there is nothing to decide by."""
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
    """One line of a chart."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Chart:
    """A figure, as the values that it shows; `log_x` and `log_y` name the base, or None for linear."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    log_x: int | None = None
    log_y: int | None = None


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


@dataclass(frozen=True)
class Place:
    """Where an entry runs: the root of a checkout."""

    root: Path

    def study(self, name: str) -> Path:
        """The file of a table's study."""
        return self.root / "scenarios" / "papers" / f"{name}.yaml"

    @property
    def results(self) -> Path:
        """Where results are kept."""
        return self.root / "docs" / "reproduction"

    @property
    def page(self) -> Path:
        """The overview of all papers."""
        return self.root / "docs" / "reproduction.md"


@dataclass(frozen=True)
class Entry:
    """A table or figure.

    title: a few words on the content; where: the place in the paper, such as "Table 4"; on: the data and
    models of our run; how: the rule of comparison; disagreement: the reasons for differences, without any
    figure of ours (those are in cells and their remarks); seed: of the entry's own draws (a study has its
    own seeds); at: predictions for a setting that is not in the paper, where there is such a thing.
    """

    name: str
    paper: str
    where: str
    title: str
    on: str
    how: str
    run: Callable[[Place], Evidence]
    disagreement: str = ""
    seed: int = 1
    at: Callable[[Mapping[str, float]], list[str]] | None = None

    @property
    def command(self) -> str:
        """The command that runs it and stores its result."""
        return f"simfl reproduce {self.name}"
