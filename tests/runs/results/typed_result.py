"""The types of a result's attributes; mypy checks this file, and a test runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_type

from simfl import Result, run
from simfl.runs.results import metrics
from simfl.runs.results.round_summary import RoundSummary
from simfl.trace.rows import Trace


def of(scenario: Mapping[str, Any]) -> float:
    """Run a scenario; return the seconds of its protocols' rounds, each attribute with its type."""
    result = run(scenario)
    assert_type(result, Result)
    assert_type(result.summary, dict[str, Any])
    assert_type(result.traces, dict[str, Trace])
    assert_type(result.rounds, dict[str, list[metrics.Round]])
    seconds = 0.0
    for protocol in result.protocols.values():
        assert_type(protocol.rounds, list[RoundSummary])
        assert_type(protocol.mean.span_s.offline, float | None)
        assert_type(protocol.final_accuracy, float | None)
        for r in protocol.rounds:
            assert_type(r.survivors, int)
            assert_type(r.span_s.training, float)
            assert_type(r.aggregate_exact, bool | None)
            seconds += r.total_s
    return seconds
