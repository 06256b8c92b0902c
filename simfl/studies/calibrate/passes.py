"""A device profile of this machine, with intervals.

Everything is measured once in each of some passes, one pass after the other, so that what changes in minutes
(other work on the machine, its clock rate) is in the spread. A rate is the median over the passes. Its
interval goes from one order statistic to another: it holds the median of all passes that there could be with
at least 95 % probability, whatever their distribution (Conover, "Practical nonparametric statistics", 3.2).
"""

from __future__ import annotations

import platform
import statistics
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scipy.stats import binom

from simfl import profiles
from simfl.dataplane.work import WORK
from simfl.folder.result import atomic
from simfl.learning.threads import one_thread
from simfl.studies.calibrate import control, kernels, training

PASSES = 21
CONFIDENCE = 0.95

Interval = tuple[float, float]


def interval(values: Sequence[float]) -> Interval:
    """Return the narrowest pair of order statistics, as many from each end, that holds the median.

    Raises:
        ValueError: fewer than six values, which cannot hold it with 95 % probability.
    """
    n = len(values)
    outside = int(binom.ppf((1 - CONFIDENCE) / 2, n, 0.5))  # so many lie beyond each end, or fewer
    if outside < 1:
        raise ValueError(f"{n} values hold their median with less than 95 % probability: 6 are needed")
    ordered = sorted(values)
    return ordered[outside - 1], ordered[n - outside]


def calibrate(
    passes: int = PASSES,
    more: Sequence[training.Training] = (),
    tell: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """Return the profile, as its file has it.

    more: trainings to find the law of, besides those of the papers' models. tell: called after each pass.
    """
    with one_thread():
        by_steps = training.by_steps()
        wanted = {kind.key: kind for kind in (*training.PAPERS, *more)}.values()
        trainings = [(kind, training.measure(kind)) for kind in wanted]
        rates: dict[str, list[float]] = {}
        fitted: list[list[tuple[float, float]]] = [[] for _ in trainings]
        for index in range(passes + 1):
            found = {**kernels.of_keys(), **kernels.of_vectors(), **kernels.of_codes(), **by_steps()}
            found |= control.measure(found, index)
            lines = [once() for _, once in trainings]
            if index:  # the first one warms up
                for kind, rate in found.items():
                    rates.setdefault(kind, []).append(rate)
                for seen, law in zip(fitted, lines, strict=True):
                    seen.append((max(law.start, 1e-9), max(law.sample, 1e-12)))
                tell(index)
    seconds = {kind: rates[kind] for kind in WORK if kind in rates}
    return {
        "description": described(),
        "seconds": {kind: rounded(statistics.median(values)) for kind, values in seconds.items()},
        "intervals": {kind: [rounded(end) for end in interval(values)] for kind, values in seconds.items()},
        "training": [_law(kind, seen) for (kind, _), seen in zip(trainings, fitted, strict=True)],
    }


def _law(kind: training.Training, seen: Sequence[tuple[float, float]]) -> dict[str, Any]:
    parts = dict(zip(("start", "sample"), zip(*seen, strict=True), strict=True))
    return {
        "model": kind.model.name,
        "shape": list(kind.shape),
        "batch_size": kind.batch_size,
        **{name: rounded(statistics.median(values)) for name, values in parts.items()},
        "intervals": {name: [rounded(end) for end in interval(values)] for name, values in parts.items()},
    }


def rounded(value: float) -> float:
    """Round to three digits: no measurement here has more."""
    return float(f"{value:.3g}")


def described() -> str:
    """Describe the machine and the versions that a profile was measured with."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    processor = names[0] if names else platform.machine()
    versions = f"numpy {version('numpy')}, torch {version('torch').split('+')[0]}"
    return f"one core of {processor}, Python {platform.python_version()}, {versions}"


def write(path: Path, profile: dict[str, Any]) -> None:
    """Put a profile into a file, which is whole or not there."""
    with atomic(path) as file:
        file.write(profiles.text(profile))
