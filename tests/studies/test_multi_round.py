"""Multi-RoundSecAgg's study, as shipped: over five seeds, by hand (`-m slow`, some minutes)."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest

from tests.engine.harness import ROOT
from tests.studies.sweep.small import swept

STUDY = ROOT / "scenarios" / "studies" / "multi_round.yaml"


@pytest.mark.slow
def test_the_order_of_the_papers_non_iid_tables(tmp_path: Path) -> None:
    """Partition worst; weighted random and batches of 3 and 4 above random; in the mean of five seeds."""
    sweep = swept(STUDY, tmp_path, jobs=2)
    summaries = [summary for _, _, summary in sweep.kept()]
    assert [summary.seed for summary in summaries] == [1, 2, 3, 4, 5]

    def mean(name: str) -> float:
        return statistics.fmean(summary.protocols[name].final_accuracy for summary in summaries)

    def last(name: str, what: str) -> list[Any]:
        return [getattr(summary.protocols[name].participation, what)[-1] for summary in summaries]

    order = ["partition_1", "batches_6_1", "random_1", "batches_4_1", "batches_3_1", "weighted_1"]
    accuracies = [mean(name) for name in order]
    assert accuracies == sorted(accuracies)
    assert mean("partition") < mean("batches_6") < mean("random")
    for data in ("", "_1"):
        assert last(f"random{data}", "T_weak") == last(f"weighted{data}", "T_weak") == [[1, 1]] * 5
        for T in (3, 4, 6):
            assert last(f"batches_{T}{data}", "T_weak") == [[T, T]] * 5
            assert last(f"batches_{T}{data}", "T_strong") == [T] * 5
        assert last(f"partition{data}", "T_strong") == [12] * 5
        gaps = {
            name: statistics.fmean(last(name + data, "F")) for name in ("random", "batches_3", "weighted")
        }
        assert gaps["weighted"] < gaps["batches_3"] < gaps["random"]
