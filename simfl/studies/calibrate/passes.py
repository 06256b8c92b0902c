"""A device profile of this machine, with intervals.

Everything is measured once a pass, so that changes over minutes (other work on the machine, its clock rate)
are in the spread. A rate is the median over the passes. Its interval, from one order statistic to another,
holds the median of all passes that there could be with at least 95 % probability, whatever their distribution
(Conover, "Practical nonparametric statistics", 3.2).
"""

import platform
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scipy.stats import binom

from simfl.dataplane.work import CODEC, WORK
from simfl.learning.device_clock import timer_of
from simfl.learning.sgd import Law
from simfl.learning.trainer import one_thread
from simfl.studies.calibrate import kernels

CONFIDENCE = 0.95


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the narrowest pair of order statistics, as many from each end, that holds the median.
    ValueError for fewer than six values, which cannot hold it with 95 % probability."""
    n = len(values)
    outside = int(binom.ppf((1 - CONFIDENCE) / 2, n, 0.5))  # so many lie beyond each end, or fewer
    if outside < 1:
        raise ValueError(f"{n} values hold their median with less than 95 % probability: 6 are needed")
    ordered = sorted(values)
    return ordered[outside - 1], ordered[n - outside]


def calibrate(
    passes: int,
    more: Sequence[kernels.Training] = (),
    tell: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """Return the profile, as its file has it. more: trainings to find the law of, besides the papers'; tell:
    called after each pass."""
    with one_thread():
        of_steps = kernels.of_steps()
        trainings: dict[tuple[Any, ...], Callable[[], Law]] = {}  # a profile holds one law for each key
        for kind in (*kernels.PAPERS_TRAININGS, *more):
            trainings[kind.law_name, kind.shape, kind.batch_size] = kernels.of_training(kind)
        rates: defaultdict[str, list[float]] = defaultdict(list)
        laws: list[defaultdict[str, list[float]]] = [defaultdict(list) for _ in trainings]
        for index in range(passes + 1):
            found = {
                **kernels.of_keys(),
                **kernels.of_vectors(),
                **kernels.of_codes(),
                **kernels.of_wire(),
                **of_steps(),
            }
            found |= kernels.of_rounds(found, index)
            fitted = [measure() for measure in trainings.values()]
            if index == 0:  # it warms up
                continue
            for name, rate in found.items():
                rates[name].append(rate)
            for law, fit in zip(laws, fitted, strict=True):
                law["start"].append(max(fit.start, 1e-9))
                law["sample"].append(max(fit.sample, 1e-12))
            tell(index)
    seconds, intervals = _spread({name: rates[name] for name in (*WORK, CODEC) if name in rates})
    training = []
    for (model, shape, batch_size), law in zip(trainings, laws, strict=True):
        medians, within = _spread(law)
        names = {"model": model, "shape": list(shape), "batch_size": batch_size}
        training.append({**names, **medians, "intervals": within})
    return {
        "description": described(more), "seconds": seconds, "intervals": intervals, "training": training,
    }  # fmt: skip


def _spread(values: Mapping[str, Sequence[float]]) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Return the median and the interval of each."""
    medians = {name: _rounded(statistics.median(passes)) for name, passes in values.items()}
    return medians, {name: [_rounded(end) for end in interval(passes)] for name, passes in values.items()}


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")  # no measurement here has more digits


def described(trainings: Sequence[kernels.Training] = ()) -> str:
    """Return the machine's name, and those of devices on which trainings ran."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    processor = names[0] if names else platform.machine()
    versions = f"numpy {version('numpy')}, torch {version('torch').split('+')[0]}"
    timers = {kind.model.name: timer_of(kind.device) for kind in trainings if kind.device != "cpu"}
    devices = [f"; training of {model}: {timer.described}" for model, timer in timers.items()]
    return f"one core of {processor}, Python {platform.python_version()}, {versions}{''.join(devices)}"
