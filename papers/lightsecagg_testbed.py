"""LightSecAgg section 7: what its testbed measured, and a round of ours taken apart in the same way.

The paper's phases follow each other, all users waiting for the last: each ends when the last party has done
with it. So the parts add up to the round. With overlap the paper gives offline and training as one figure.
"""

from __future__ import annotations

from collections.abc import Mapping

from simfl.protocols.machine import SERVER
from simfl.runs.folder.result import Result
from simfl.trace import rows
from simfl.trace.rows import PHASES
from simfl.virtual_time import NS

PROTOCOLS = {"lightsecagg": "LightSecAgg", "secagg": "SecAgg", "secagg_plus": "SecAgg+"}
"""Entries of the scenario, and how the paper writes them."""

RATES = (0.1, 0.3, 0.5)
"""The drop-out rates p of Table 4's columns."""

TRAINING_S = 22.8

TABLE4: dict[bool, dict[str, dict[str, tuple[float, float, float]]]] = {
    False: {
        "lightsecagg": {
            "offline": (69.3, 69.0, 191.2),
            "training": (TRAINING_S,) * 3,
            "upload": (12.4, 12.2, 21.6),
            "recovery": (40.9, 40.7, 64.5),
            "total": (145.4, 144.7, 300.1),
        },
        "secagg": {
            "offline": (95.6, 98.6, 102.6),
            "training": (TRAINING_S,) * 3,
            "upload": (10.7, 10.9, 11.0),
            "recovery": (911.4, 1499.2, 2087.0),
            "total": (1047.5, 1631.5, 2216.4),
        },
        "secagg_plus": {
            "offline": (67.9, 68.1, 69.2),
            "training": (TRAINING_S,) * 3,
            "upload": (10.7, 10.8, 10.7),
            "recovery": (379.1, 436.7, 495.5),
            "total": (470.5, 538.4, 608.2),
        },
    },
    True: {
        "lightsecagg": {
            "offline": (75.1, 74.9, 196.9),
            "upload": (12.6, 12.0, 21.4),
            "recovery": (40.7, 41.0, 64.9),
            "total": (123.4, 127.3, 283.2),
        },
        "secagg": {
            "offline": (101.2, 102.3, 101.3),
            "upload": (10.9, 10.8, 11.2),
            "recovery": (911.2, 1501.3, 2086.8),
            "total": (1030.3, 1614.4, 2198.9),
        },
        "secagg_plus": {
            "offline": (73.9, 73.8, 74.2),
            "upload": (10.7, 10.8, 10.9),
            "recovery": (378.9, 436.7, 497.3),
            "total": (463.6, 521.3, 582.4),
        },
    },
}
"""overlap -> protocol -> phase -> seconds at each of `RATES`; with overlap offline and training are one."""


TABLE3 = {98: (8.5, 2.9), 320: (12.7, 4.1), 802: (13.5, 4.4)}
"""Mbit/s of the users -> gain over SecAgg and over SecAgg+."""

TABLE2: dict[str, tuple[int, tuple[tuple[float, float], ...]]] = {
    "logistic": (7_850, ((6.7, 2.5), (8.0, 2.9), (13.0, 4.1))),
    "femnist_cnn": (1_206_590, ((11.3, 3.7), (12.7, 4.1), (13.2, 4.2))),
    "mobilenet_v3": (3_111_462, ((7.6, 2.8), (9.5, 3.3), (13.1, 3.9))),
    "efficientnet_b0": (5_288_548, ((3.3, 1.6), (3.4, 1.7), (13.0, 4.1))),
}
"""Model -> d, and the gains over SecAgg and SecAgg+: non-overlapped, overlapped, aggregation only."""


COEFFICIENT_S = (7.3e-5, 1.3e-4)
"""Seconds in which loops of Python find a coefficient of the code on a machine as slow as the testbed's,
modulo 2^15 - 19 and 2^31 - 1 (benchmarks/published.py). Part of no profile: those of a round take longer than
Table 2's first row leaves for all of its aggregation."""


def coefficients(N: int, U: int) -> tuple[float, float]:
    """By how many seconds they would lengthen a round of LightSecAgg: each user finds N U, all at once, and
    then the server U^2."""
    low, high = (U * (N + U) * seconds for seconds in COEFFICIENT_S)
    return low, high


def breakdown(result: Result, name: str) -> dict[str, float]:
    """Seconds of each phase of the first round of an entry, one after the other, and their total.

    Raises:
        ValueError: the round came to nothing.
    """
    trace = result.traces[name]
    if aborted := next((row for row in trace if isinstance(row, rows.Aborted)), None):
        raise ValueError(f"{result.scenario.name}, {name}: {aborted.reason}")
    ends = _ends(trace)
    if result.scenario.overlap:
        ends["offline"] = max(ends["offline"], ends.pop("training"))
    parts, before = {}, 0
    for phase in PHASES:
        if phase in ends:
            after = max(before, ends[phase])
            parts[phase], before = (after - before) / NS, after
    return {**parts, "total": before / NS}


def answers_s(result: Result, name: str) -> float:
    """Return the seconds in which the last answer of the recovery that was waited for crosses its links."""
    trace = result.traces[name]
    (end,) = (row for row in trace if isinstance(row, rows.End))
    answers = (
        row for row in trace if isinstance(row, rows.Sent) and (row.to, row.phase) == (SERVER, "recovery")
    )
    last = max(
        (r for r in answers if r.arrived is not None and r.arrived <= end.at), key=lambda r: r.arrived or 0
    )
    return ((last.arrived or 0) - last.sent) / NS


def _ends(trace: rows.Trace) -> dict[str, int]:
    """When the last party was done with each phase, nanoseconds, up to the end of the round."""
    (end,) = (row for row in trace if isinstance(row, rows.End))
    last = dict.fromkeys(PHASES, 0)
    for row in trace:
        if isinstance(row, rows.Sent) and row.arrived is not None:
            last[row.phase] = max(last[row.phase], row.arrived)
        elif isinstance(row, rows.Step):
            at = row.start
            for phase, ns in row.segments:
                at += ns
                last[phase] = max(last[phase], at if ns else 0)
    return {phase: min(at, end.at) for phase, at in last.items()}


def settings(p: float, overlap: bool) -> Mapping[str, object]:
    """A column of Table 4 as overrides of `scenarios/papers/lightsecagg.yaml`.

    At p = 50 % the paper loses 100 of 200 users and has U = N / 2 + 1; as U must survive, 99 are lost here.
    """
    half = p == 0.5
    return {
        "overlap": overlap,
        "dropout": {"kind": "rate", "rate": 0.495 if half else p, "when": "not_counted"},
        "privacy": {"T": 100, "D": 99 if half else 60, "U": 101 if half else 140},
    }
