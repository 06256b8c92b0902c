"""Runs that cannot go on say so, and what went wrong is told in one line."""

from __future__ import annotations

import math

import pytest

from simfl import metrics
from simfl.errors import DataPlaneError
from simfl.trace import Aborted, Lost, Step
from tests.engine.harness import ASYNC, SIX, run

DIVERGES = {"learning.lr": 1e9, "learning.weight_decay": 1e9, "learning.epochs": 5}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_training_that_diverges_names_the_step(workers: int) -> None:
    with pytest.raises(DataPlaneError, match=r"secagg, round 0, user \d, receive inbox: .*not finite"):
        run({**SIX, **DIVERGES, "protocols": ["secagg"], "workers": workers})


def test_a_model_that_diverged_in_the_clear_has_no_loss() -> None:
    (protocol,) = run({**DIVERGES, "rounds": 2}).summary["protocols"].values()
    losses = [r["loss"] for r in protocol["rounds"]]
    assert None in losses
    assert all(loss is None or math.isfinite(loss) for loss in losses)


def test_a_run_whose_updates_are_all_given_up_ends() -> None:
    (trace,) = run({"protocols": ["fedbuff"], "deadlines.upload": 0.001}, ASYNC).traces.values()
    (abort,) = (row for row in trace if isinstance(row, Aborted))
    assert "deadlines.upload too short" in abort.reason


def test_a_horizon_ends_a_run() -> None:
    (trace,) = run({"protocols": ["fedbuff"], "rounds": 10**6, "horizon_s": 2.0}, ASYNC).traces.values()
    (abort,) = (row for row in trace if isinstance(row, Aborted))
    assert "the horizon of 2 s is reached" in abort.reason
    assert abort.at <= 2 * 10**9


def test_who_leaves_amid_training_was_computing_until_then() -> None:
    """The critical path books the cut training of a user that went offline, not one long wait."""
    fickle = {"kind": "sessions", "on_s": {"fixed": 3.0}, "off_s": {"fixed": 3.0}}
    slow = {"population.availability": fickle, "population.devices.slowdown": 20000.0}
    result = run({**slow, "deadlines.upload": 10.0})
    (trace,) = result.traces.values()
    lost = [row for row in trace if isinstance(row, Lost)]
    assert lost
    for row in lost:
        cut = trace[row.cause]
        assert isinstance(cut, Step)
        assert cut.call == "train"
        assert cut.left > 0
        assert cut.end == row.at
    (entry,) = metrics.rounds(trace)
    assert sum(entry.critical.values()) == entry.end - entry.start
