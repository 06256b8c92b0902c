"""Callbacks of a run: objects that are given its rounds as they finish, such as trackers of experiments.

A callback only reads: a run's trace is the same with and without it.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from simfl.runs.results import metrics
from simfl.runs.results.round_summary import Measurement, RoundSummary
from simfl.runs.results.summary import Summary
from simfl.scenario.schema import Scenario
from simfl.trace.rows import Trace

EVERY_S = 2.0
SHARE = 0.02
"""The most of a run that the reading of its trace may take; beyond, it is put off."""


class Tracker(Protocol):
    """A callback of a run: one of your own is any class with these three methods.

    >>> from simfl import run
    >>> class Printed:
    ...     def on_start(self, scenario): print(scenario.name)
    ...     def on_round(self, protocol, row): print(protocol, row.index, row.survivors)
    ...     def on_end(self, summary): print(list(summary.protocols))
    >>> over = {"rounds": 1, "payload": "shadow", "protocols": ["fedavg"]}
    >>> result = run("scenarios/tutorial.yaml", over, callbacks=[Printed()])
    tutorial
    fedavg 0 12
    ['fedavg']
    """

    def on_start(self, scenario: Scenario) -> None:
        """Take in the scenario, before its first protocol runs."""

    def on_round(self, protocol: str, row: RoundSummary) -> None:
        """Take in a finished round; those of a protocol come in order, each once the next has ended.
        Its later rows count in the summary only."""

    def on_end(self, summary: Summary) -> None:
        """Close everything: the run is over, finished or not (`summary.interrupted`)."""


class TrackerFeed:
    """Gives trackers the finished rounds, every few seconds: a round's values are a fold over the trace."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self.trackers = trackers
        self._sent: dict[str, int] = {}
        self._due_s = 0.0

    @contextmanager
    def of(self, scenario: Scenario, summarised: Callable[[], Summary]) -> Iterator[None]:
        """Give a run's start, and its end however it ends."""
        for tracker in self.trackers:
            tracker.on_start(scenario)
        interrupted = True
        try:
            yield
            interrupted = False
        finally:
            if self.trackers:
                summary = summarised().model_copy(update={"interrupted": interrupted})
                for tracker in self.trackers:
                    tracker.on_end(summary)

    def send(self, protocol: str, rows: Trace, measured: Sequence[Measurement], last: bool = False) -> None:
        """Give a protocol's rounds since the last time, if that is due or they are the last."""
        since_s = time.monotonic()
        if not self.trackers or (since_s < self._due_s and not last):
            return
        sent = self._sent.get(protocol, 0)
        finished = list(zip(metrics.rounds(rows), measured, strict=False))
        if not last:  # of the newest, answers that nobody waits for are still under way
            finished = finished[:-1]
        for r, m in finished[sent:]:
            row = RoundSummary.of(r, m)
            for tracker in self.trackers:
                tracker.on_round(protocol, row)
        self._sent[protocol] = len(finished)
        now_s = time.monotonic()
        self._due_s = now_s + max(EVERY_S, (now_s - since_s) / SHARE)
