"""The seconds of each kind of work where it occurs: in steps of small runs under the measured clock.

A kernel that is called again and again finds its code and data in the caches. In a round it is called once,
after other work, and takes up to three times as long. So `kernels` gives each kind's least seconds, warm, and
small runs on the engine give what it takes beyond: in rounds and with a buffer, of short and long updates, in
any order. Each kind of step is one equation: its CPU time is the sum of its counted work times the seconds of
each kind of work. They are solved by least relative squares; no kind takes less than its kernel does warm.

Other work on the machine makes all steps longer. So a fixed kernel is timed before and after each run of a
protocol, and the steps' times are divided by how much longer than its least it took. A kind of step is timed
`TURNS` times a pass, of which the fastest counts; over passes, its median counts.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import nnls

from simfl.dataplane.work import Segment
from simfl.engine import clocks
from simfl.engine.driver import drive
from simfl.engine.machine_speed import REPEATS, kernel_ns
from simfl.engine.setup import ClosedRound
from simfl.engine.warm_up import warm
from simfl.protocols.machine import SERVER
from simfl.runs.build import Experiment, build
from simfl.scenario.load import load
from simfl.trace.rows import Trace

FAST = {"uplink_mbps": 1e6, "downlink_mbps": 1e6}
WORLD: dict[str, Any] = {
    "seed": 1,
    "clock": "measured",
    "rounds": 2,
    "network": {"users": {**FAST, "latency_s": 0.001}, "server": FAST, "overhead_s": 0.0},
    "detect": {"disconnect": 0.0},
    "deadlines": {"advertise": 30, "shares": 30, "upload": 120, "recovery": 30},
    "quantization": {"levels": 65536, "clip": 4.0},
}
BUFFER: dict[str, Any] = {
    **{key: value for key, value in WORLD.items() if key != "deadlines"},
    "rounds": 8,
    "deadlines": {"advertise": 30, "upload": 120, "recovery": 30},
}


def _world(users: int, side: int, epochs: int, samples: int) -> dict[str, Any]:
    """Return the part of a small run that is its size: of so many users, with updates of 10 side^2 + 10
    elements."""
    third = users // 3
    shape = {
        "kind": "synthetic",
        "shape": [1, side, side],
        "classes": 10,
        "train": users * samples,
        "test": 10,
    }
    sgd = {"model": "logistic", "epochs": epochs, "batch_size": 10, "lr": 0.01}
    return {
        "population": {"users": users, "devices": {"slowdown": {"kind": "uniform", "low": 1, "high": 2}}},
        "privacy": {"T": third, "D": third, "U": users - third},
        "learning": {"dataset": shape, **sgd},
    }


ROUNDS = ("fedavg", "secagg", "lightsecagg")
BUFFERS = ("fedbuff", "lightsecagg_async")
SHARED: tuple[tuple[int, int, int, int], ...] = (
    (8, 6, 6, 23), (12, 15, 1, 34), (30, 9, 2, 15), (48, 7, 1, 8), (10, 40, 3, 47), (14, 90, 2, 26),
    (5, 110, 1, 21),
)  # fmt: skip
"""Users, side, epochs and samples a user of runs in rounds."""
BUFFERED: tuple[tuple[int, int, int, int], ...] = (
    (20, 8, 12, 16), (90, 7, 3, 22), (24, 60, 2, 31), (30, 70, 1, 19),
)  # fmt: skip
"""The same of runs with a buffer."""

TURNS = 2
"""Times that each protocol of a small run is played in a pass."""

LEAST_S = 1e-15
"""A rate that no kind of work is below: a profile has none of zero."""

DIGITS = {"dataset": "digits", "partition": {"dirichlet": 1.0}, "model": "cnn", "epochs": 2, "lr": 0.1}
BY_AUTOGRAD = ((30, 10), (15, 40))
"""Users and batch sizes of runs whose model is a small network, trained by autograd."""

NO_WORK = ("cpu_ns", "probe_ns", "segments")
"""Keys of `Steps` beside kinds of work."""

BY_KERNELS = ("mds_mac", "mds_coefficient", "mds_inverse", "lagrange_pair")
"""Kinds that take next to nothing in runs as small as these: their kernels alone give their seconds."""

LEAST_SHARE = 0.01
"""Kinds of steps that take less of their run are left out: they are few or next to nothing."""

Steps = dict[tuple[Any, ...], Counter[str]]
"""(run, protocol, server or not, call, message, phase) -> the work of all such segments, with their
number, `cpu_ns`, and the `probe_ns` that the fixed kernel took beside them."""


class NotedClock(clocks.MeasuredClock):
    """The measured clock, which keeps each segment's work beside its time."""

    def __init__(self, noted: Steps, *run: Any) -> None:
        super().__init__("")
        self.noted, self.run = noted, run

    def spans(
        self, key: clocks.Key, segments: Sequence[Segment], slowdown: float, overhead_ns: int, cut: bool
    ) -> clocks.Spans:
        _, party, _, call, what = key
        for segment in segments:
            name = (*self.run, party == SERVER, call, what, segment.phase)
            self.noted[name].update(segment.work, segments=1, cpu_ns=segment.taken_ns)
        return super().spans(key, segments, slowdown, overhead_ns, cut)


def small_runs() -> list[Experiment]:
    """Return the small runs, built."""
    rounds = [
        {**WORLD, **_world(*size), "protocols": list(ROUNDS), "dropout": {"rate": 0.1}} for size in SHARED
    ]
    buffers = [
        {
            **BUFFER,
            **_world(*size),
            "protocols": list(BUFFERS),
            "buffer": {"K": 6, "staleness_bound": 10, "concurrency": size[0] // 2},
        }
        for size in BUFFERED
    ]
    digits = [
        {
            **WORLD,
            **_world(users, 8, 1, 1),
            "learning": {**DIGITS, "batch_size": batch_size},
            "protocols": ["fedavg"],
        }
        for users, batch_size in BY_AUTOGRAD
    ]
    return [build(load(scenario)) for scenario in (*rounds, *buffers, *digits)]


async def _drop(closed: ClosedRound) -> None:
    """Take no notice of a round's outcome."""


def play(experiment: Experiment, protocol: str, steps: Steps, run: int) -> Trace:
    """Run a protocol under the measured clock, and add its steps to `steps`; return its trace."""
    timed: Steps = defaultdict(Counter)
    session = experiment.session(protocol, NotedClock(timed, run, protocol))
    setup, trainer = session.setup, experiment.trainers[protocol]
    scenario = experiment.scenario
    warm(setup.protocol, setup.params, scenario.cohort, trainer, scenario.learning.server, None)
    before_ns = _probe_ns()
    try:
        asyncio.run(drive(session, _drop, lambda: None))
    finally:
        session.ops.close()
    probe_ns = (before_ns + _probe_ns()) // 2
    for name, work in timed.items():
        steps[name].update(work, probe_ns=probe_ns * work["segments"])
    return session.trace


def _probe_ns() -> int:
    return min(kernel_ns() for _ in range(REPEATS))


def undisturbed(every: Sequence[Steps]) -> list[Steps]:
    """Return the steps with the times that they would have where the fixed kernel always took its least."""
    least_ns = min(work["probe_ns"] / work["segments"] for steps in every for work in steps.values())
    return [
        {
            name: Counter({**work, "cpu_ns": round(_per_probe(work) * work["segments"] * least_ns)})
            for name, work in steps.items()
        }
        for steps in every
    ]


def _per_probe(work: Counter[str]) -> float:
    """Return the mean CPU time of a step in units of the fixed kernel's beside it."""
    return work["cpu_ns"] / work["probe_ns"]


def turn(runs: Sequence[Experiment], rng: np.random.Generator) -> Steps:
    """Return the steps of all runs, each protocol of them `TURNS` times in any order: of a kind the fastest
    turn."""
    parts = [(run, name) for run, experiment in enumerate(runs) for name in experiment.scenario.protocols]
    fastest: Steps = {}
    for _ in range(TURNS):
        steps: Steps = defaultdict(Counter)
        for index in rng.permutation(len(parts)):
            run, name = parts[index]
            play(runs[run], name, steps, run)
        keep_fastest(fastest, steps)
    return fastest


def keep_fastest(fastest: Steps, steps: Steps) -> None:
    """Put those kinds of steps into `fastest` that are not there, or took longer, beside the fixed kernel."""
    for name, work in steps.items():
        if name not in fastest or _per_probe(work) < _per_probe(fastest[name]):
            fastest[name] = work


def pooled(passes: Sequence[Steps]) -> Steps:
    """Return each kind of step as in the pass in which its mean duration is the median of all passes."""
    names = {name for steps in passes for name in steps}
    every = {name: [steps[name] for steps in passes if name in steps] for name in sorted(names)}
    return {name: sorted(works, key=_mean_ns)[len(works) // 2] for name, works in every.items()}


def _mean_ns(work: Counter[str]) -> float:
    return work["cpu_ns"] / work["segments"]


def solved(steps: Steps, warm_s: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of each kind of work, with the least relative squares over kinds of steps, weighted.

    Args:
        steps: Work and CPU time of each kind of step.
        warm_s: Seconds of kinds of work that their kernels take warm: their least.
    """
    totals: Counter[tuple[Any, ...]] = Counter()
    for name, work in steps.items():
        totals[name[:2]] += work["cpu_ns"]
    shares = {name: work["cpu_ns"] / totals[name[:2]] for name, work in steps.items()}
    names = [name for name, share in shares.items() if share >= LEAST_SHARE]
    given = {kind: warm_s[kind] for kind in BY_KERNELS}
    kinds = sorted({kind for name in names for kind in steps[name]} - {*NO_WORK, *given})
    # Relative errors: each equation is divided by the seconds that the step took.
    taken_s = np.array([steps[name]["cpu_ns"] / 1e9 for name in names])
    matrix = np.array([[steps[name][kind] for kind in kinds] for name in names]) / taken_s[:, None]
    least = np.array([warm_s.get(kind, 0.0) for kind in kinds])
    remaining = 1 - matrix @ least
    remaining -= (
        np.array([sum(steps[name][kind] * s for kind, s in given.items()) for name in names]) / taken_s
    )
    # What takes most of a run counts most, but 2 % of it is to be right too.
    weights = np.array([shares[name] for name in names]) ** 0.25
    scale = matrix.max(axis=0)  # so that the kinds' numbers are of one size
    beyond, _ = nnls(weights[:, None] * matrix / scale, weights * np.maximum(0.0, remaining))
    seconds = np.maximum(least + beyond / scale, LEAST_S)
    return {**warm_s, **dict(zip(kinds, seconds.tolist(), strict=True))}
