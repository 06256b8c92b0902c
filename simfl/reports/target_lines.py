"""Targets in the terminal: a sentence under a run's table, a line for each point and protocol of a sweep."""

from collections.abc import Iterable, Iterator, Mapping

from simfl.runs.results.columns import Measure
from simfl.runs.results.statistics import Estimate
from simfl.runs.results.summary import ProtocolSummary

KINDS = ("accuracy", "loss")


def of_run(protocols: Iterable[ProtocolSummary]) -> Iterator[str]:
    """Yield the targets of a run, with what it means to reach and to keep one."""
    found = {kind: target.value for p in protocols for kind, target in (p.targets or {}).items()}
    if found:
        listed = ", ".join(f"{kind} {value:g}" for kind, value in found.items())
        yield f"Target {listed}: reached at the first evaluation that meets it, kept if every later one does"


def of_sweep(measures: Mapping[Measure, Estimate | None]) -> Iterator[str]:
    """Yield the seeds of a point and protocol that reached each target, and the means if all of them did."""
    for kind in KINDS:
        share = measures.get((f"{kind}_reached", ""))
        if share is not None:
            line = f"to {kind}: {round(share.mean * share.n)} of {share.n} seeds"
            seconds, rounds, moved = (measures[f"{kind}_after_{key}", ""] for key in ("s", "rounds", "bytes"))
            if seconds and rounds and moved:
                line += f"; {seconds.text()} s, {rounds.text(1)} rounds, {moved.text(scale=1e6)} MB"
            yield line
