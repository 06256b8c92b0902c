"""Callbacks of a run: objects that receive its rounds as they finish, such as trackers of experiments.

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
"""[s] Between two readings of the trace."""
SHARE = 0.02
"""Maximum share of a run that reading its trace takes; above it, the next reading is put off."""


class Tracker(Protocol):
    """A callback of a run; a user-defined one is any class with these three methods.

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
        """Receive the scenario, before its first protocol runs."""

    def on_round(self, protocol: str, row: RoundSummary) -> None:
        """Receive a finished round, after the end of the next one.

        Rounds of a protocol arrive in order. Rows that the round gets later count in the summary only.
        """

    def on_end(self, summary: Summary) -> None:
        """Release all resources: the run is over, finished or not (`summary.interrupted`)."""


class TrackerFeed:
    """Sends finished rounds to trackers, every few seconds only, as each time the trace is read."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self.trackers = trackers
        self._sent: dict[str, int] = {}
        self._due_s = 0.0

    @contextmanager
    def of(self, scenario: Scenario, summarised: Callable[[], Summary]) -> Iterator[None]:
        """Notify the trackers of the start of a run, and of its end however it ends."""
        for tracker in self.trackers:
            tracker.on_start(scenario)
        # A `finally` cannot see whether its block was left by an error, so the end of the block says so.
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
        """Send the rounds of a protocol that were not sent yet, if that is due or they are the last."""
        since_s = time.monotonic()
        if not self.trackers or (since_s < self._due_s and not last):
            return
        sent = self._sent.get(protocol, 0)
        # The whole trace is read anew, as a row may belong to a round before it. Its rounds run ahead of the
        # measurements, whose content may still be computed: hence not strict.
        finished = list(zip(metrics.rounds(rows), measured, strict=False))
        # Late answers to the newest round may still be under way.
        if not last:
            finished = finished[:-1]
        for r, m in finished[sent:]:
            row = RoundSummary.of(r, m)
            for tracker in self.trackers:
                tracker.on_round(protocol, row)
        self._sent[protocol] = len(finished)
        now_s = time.monotonic()
        # Reading takes longer as the trace grows: the interval grows with it.
        self._due_s = now_s + max(EVERY_S, (now_s - since_s) / SHARE)
