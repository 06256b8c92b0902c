"""The figures of a class of users: participation, losses, joules, and the time that others waited."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from simfl.runs.results.by_class import ClassSummary
from simfl.runs.results.summary import ProtocolSummary
from simfl.runs.results.units import percent


@dataclass(frozen=True)
class ClassFigure:
    """A figure of a class: a part of a whole."""

    label: str
    """Its name."""
    read: Callable[[ClassSummary, int], tuple[float, float]]
    """Returns part and whole, from a class and the number of the run's aggregates."""
    digits: int | None = None
    """Of the ratio of part and whole; None where it is shown in percent."""
    rare: bool = True
    """Left out where every class has nothing of it."""

    def text(self, classes: Iterable[tuple[ClassSummary, int]]) -> str:
        """Return the figure of one run, or of several together; "" of no value."""
        values = [self.read(c, aggregates) for c, aggregates in classes]
        part, whole = (sum(column) for column in zip(*values, strict=True)) if values else (0, 0)
        if not whole:
            return ""
        return percent(part, whole) if self.digits is None else f"{part / whole:.{self.digits}f}"


PATH = ClassFigure(
    "s on the path", lambda c, aggregates: (sum(c.waited_s.values()), max(1, aggregates)), 3, rare=False
)
FIGURES = (
    ClassFigure("in aggregates", lambda c, _: (c.aggregated, c.invited), rare=False),
    ClassFigure("cut short", lambda c, _: (c.partial, c.aggregated)),
    ClassFigure("lost", lambda c, _: (sum(c.lost.values()), c.invited), rare=False),
    ClassFigure("surplus", lambda c, _: (c.surplus, c.invited)),
    ClassFigure("J/user", lambda c, _: (c.energy.users_j, c.invited) if c.energy else (0, 0), 3),
)


def class_figures(protocols: Iterable[ProtocolSummary]) -> list[ClassFigure]:
    """Return the figures that any class has something of."""
    every = [c for p in protocols for c in (p.classes or {}).values()]
    return [f for f in FIGURES if not f.rare or any(f.read(c, 0)[0] for c in every)]
