"""The rounds of a live protocol on disk as they finish, so that they stay if the server does not see its end.

They are a run's folder inside the folder `unfinished`, removed once the whole protocol is saved. They have
the server's own rows and the new model, and no audit: users report their rows when the protocol is over.
Writing waits for the disk, so that a thread of its own does it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from simfl.engine.setup import ClosedRound
from simfl.live.processes import step_back
from simfl.runs.folder.saving import Point, Saver
from simfl.runs.folder.unfinished import PROTOCOL, Unfinished
from simfl.runs.results.round_summary import Measurement
from simfl.scenario.schema import Scenario
from simfl.trace import rows
from simfl.trace.rows import Row, Trace


class RoundSaver:
    """Saves the rounds of one protocol. What is there of an earlier attempt stays until the first round."""

    def __init__(
        self, own: Unfinished, scenario: Scenario, name: str, on_error: Callable[[BaseException], None]
    ):
        """Prepare to save.

        Args:
            own: The folder of the unfinished run.
            scenario: The run's.
            name: The protocol's entry.
            on_error: Called from another thread with an error of writing.
        """
        self.folder = own.folder / PROTOCOL
        self.scenario, self.name, self.on_error = scenario, name, on_error
        self.rows = Trace()
        self._saver: Saver | None = None
        self._thread = ThreadPoolExecutor(1, "saving", step_back)

    def add(self, closed: ClosedRound, trace: Trace, model: Any) -> None:
        """Save a finished round. trace: the server's, up to now; model: float32 [1, d], after the round."""
        self.rows.timed_by = trace.timed_by
        self.rows.extend(map(own_causes, trace[len(self.rows) :]))
        models = {closed.round + 1: np.asarray(model)}
        point = Point(len(self.rows), models, None, ())
        measurement = Measurement(dropout_rate=closed.rate)
        self._thread.submit(self._save, measurement, point).add_done_callback(self._done)

    def _save(self, measurement: Measurement, point: Point) -> None:
        if self._saver is None:
            shutil.rmtree(self.folder, ignore_errors=True)
            own = Unfinished(self.folder)
            own.folder.mkdir(parents=True)
            self._saver = Saver(own, 0)
            self._saver.begin(self.scenario)
            self._saver.start(self.name, self.rows, None)
        self._saver.add(measurement, None, point)

    def _done(self, saving: Future[None]) -> None:
        if (error := saving.exception()) is not None:
            self.on_error(error)

    def close(self) -> None:
        """Wait until all is written."""
        self._thread.shutdown()

    def discard(self) -> None:
        """Remove the rounds, as the whole protocol is saved."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def own_causes(row: Row) -> Row:
    """Return a row of the server's trace without a cause that is a row of a user's trace."""
    match row:
        case rows.Sent() if row.arrived is not None:
            return row._replace(cause=-1)
        case rows.Step() if row.cause < -1:
            return row._replace(cause=-1)
        case _:
            return row
