"""What mypy is told of a result is what it holds."""

from __future__ import annotations

from simfl.runs.results.metrics import rounds
from tests.engine.harness import SYNC, run
from tests.runs.results.typed_result import of


def test_typed_attributes_hold_the_run() -> None:
    (entry,) = rounds(run().traces["fedavg"])
    assert of(SYNC) == (entry.end - entry.start) / 1e9
