"""The rounds of a live protocol on disk as they finish, so that they stay if the server does not see its end.

They have the server's own rows and the new model, and no audit: users report their rows when the protocol is
over, and the whole protocol is saved in their place.
Writing waits for the disk, so that a thread of its own does it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from simfl.engine.setup import ClosedRound
from simfl.live.processes import step_back
from simfl.runs.folder.saving import CheckpointArrays, Saver
from simfl.runs.results.round_summary import Measurement
from simfl.trace import rows
from simfl.trace.rows import Row, Trace


class RoundSaver:
    """Saves the rounds of one protocol. Those of an earlier attempt stay until its first round."""

    def __init__(self, saver: Saver, name: str, on_error: Callable[[BaseException], None]):
        """Prepare to save.

        Args:
            saver: The run's.
            name: The protocol's entry.
            on_error: Called from another thread with an error of writing.
        """
        self.saver, self.on_error = saver, on_error
        self.rows = Trace()
        self._thread = ThreadPoolExecutor(1, "saving", step_back)
        saver.start(name, self.rows, None, anew=True)

    def add(self, closed: ClosedRound, trace: Trace, model: Any) -> None:
        """Save a finished round. trace: the server's, up to now; model: float32 [1, d], after the round."""
        self.rows.timed_by = trace.timed_by
        self.rows.extend(map(own_causes, trace[len(self.rows) :]))
        models = {closed.round + 1: np.asarray(model)}
        point = CheckpointArrays(len(self.rows), models, None, ())
        measurement = Measurement(dropout_rate=closed.rate)
        self._thread.submit(self.saver.add, measurement, None, point).add_done_callback(self._done)

    def _done(self, saving: Future[None]) -> None:
        if (error := saving.exception()) is not None:
            self.on_error(error)

    def close(self) -> None:
        """Wait until all is written."""
        self._thread.shutdown()


def own_causes(row: Row) -> Row:
    """Return a row of the server's trace without a cause that is a row of a user's trace."""
    match row:
        case rows.Sent() if row.arrived is not None:
            return row._replace(cause=-1)
        case rows.Step() if row.cause < -1:
            return row._replace(cause=-1)
        case _:
            return row
