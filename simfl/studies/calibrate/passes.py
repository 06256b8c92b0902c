"""A device profile of this machine, with intervals.

Everything is measured once in each of some passes, one pass after the other, so that what changes in minutes
(other work on the machine, its clock rate) is in the spread. A rate is the median over the passes. Its
interval goes from one order statistic to another: it holds the median of all passes that there could be with
at least 95 % probability, whatever their distribution (Conover, "Practical nonparametric statistics", 3.2).
"""

from __future__ import annotations

import platform
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scipy.stats import binom

from simfl.dataplane.work import WORK
from simfl.learning.trainer import one_thread
from simfl.studies.calibrate import control, kernels, training

CONFIDENCE = 0.95


def interval(values: Sequence[float]) -> tuple[float, float]:
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
    passes: int,
    more: Sequence[training.Training] = (),
    tell: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """Return the profile, as its file has it.

    more: trainings to find the law of, besides those of the papers' models. tell: called after each pass.
    """
    with one_thread():
        by_steps = training.by_steps()
        # A profile finds a law by these three, and holds each once.
        keyed = {(t.model.name, t.shape, t.batch_size): t for t in (*training.PAPERS, *more)}
        wanted = keyed.values()
        measures = [training.measure(kind) for kind in wanted]
        rates: defaultdict[str, list[float]] = defaultdict(list)
        laws: list[defaultdict[str, list[float]]] = [defaultdict(list) for _ in measures]
        for index in range(passes + 1):
            found = {**kernels.of_keys(), **kernels.of_vectors(), **kernels.of_codes(), **by_steps()}
            found |= control.measure(found, index)
            fitted = [measure() for measure in measures]
            if index == 0:  # it warms up
                continue
            for name, rate in found.items():
                rates[name].append(rate)
            for law, fit in zip(laws, fitted, strict=True):
                law["start"].append(max(fit.start, 1e-9))
                law["sample"].append(max(fit.sample, 1e-12))
            tell(index)
    seconds, intervals = _spread({name: rates[name] for name in WORK if name in rates})
    trainings = []
    for kind, law in zip(wanted, laws, strict=True):
        medians, within = _spread(law)
        names = {"model": kind.model.name, "shape": list(kind.shape), "batch_size": kind.batch_size}
        trainings.append({**names, **medians, "intervals": within})
    return {
        "description": described(), "seconds": seconds, "intervals": intervals, "training": trainings,
    }  # fmt: skip


def _spread(values: Mapping[str, Sequence[float]]) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Return the median and the interval of each."""
    medians = {name: rounded(statistics.median(passes)) for name, passes in values.items()}
    return medians, {name: [rounded(end) for end in interval(passes)] for name, passes in values.items()}


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
