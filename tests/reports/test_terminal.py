"""The table that a person sees."""

from __future__ import annotations

from io import StringIO
from typing import Any

from rich.console import Console

from simfl.reports.terminal import progress, show
from simfl.simulate import Progress
from simfl.trace import PHASES


def round_(index: int, rate: float | None = None, reason: str | None = None, **more: Any) -> dict[str, Any]:
    """One entry of a summary's rounds, with figures that tell the phases apart."""
    return {
        "index": index,
        "status": "aborted" if reason else "completed",
        "reason": reason,
        "start_s": 10.0 * index,
        "end_s": 10.0 * index + 7,
        "survivors": 0 if reason else 9,
        "dropped": dict.fromkeys(PHASES, 0) | {"upload": 1},
        "dropout_rate": rate,
        "span_s": {"offline": 1.0, "training": 2.0, "upload": 3.0, "recovery": 4.0},
        "critical_s": {"offline": 0.5, "training": 1.5, "upload": 2.5, "recovery": 2.5},
        "aggregate_exact": None if reason else True,
        "bytes_up": 2_000_000,
        "bytes_down": 1_000_000,
        "discarded_stale": 2,
        "clipped": 0,
        "wrapped": None,
        "reliable": None,
        "private": None,
        "refused": {},
        **more,
    }


def summary(staleness: dict[str, int] | None = None, **protocols: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "scenario": "made_up",
        "clock": "modelled",
        "interrupted": False,
        "protocols": {
            name: {"rounds": rounds, "final_accuracy": 0.9375, "staleness": staleness}
            for name, rounds in protocols.items()
        },
    }


def text(content: dict[str, Any], width: int = 80) -> str:
    console = Console(file=StringIO(), width=width)
    show(console, content, "reference")
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def row(page: str, label: str) -> list[str]:
    line = next(line for line in page.splitlines() if line.startswith(label + " "))
    return [cell.strip() for cell in line.split("│")[1:]]


def test_phases_are_rows_and_protocols_columns() -> None:
    page = text(summary(fedavg=[round_(0), round_(1)], secagg=[round_(0)]))
    assert row(page, "upload") == ["3.000", "3.000"]
    assert row(page, "total") == ["7.000", "7.000"]
    assert row(page, "critical: offline") == ["0.500", "0.500"]
    assert row(page, "survivors") == ["9", "9"]
    assert row(page, "aggregates exact") == ["2 of 2", "1 of 1"]
    assert row(page, "users lost") == ["2", "1"]
    assert row(page, "test accuracy") == ["0.9375", "0.9375"]
    assert "Clock modelled" in page
    assert "reference" in page


def test_an_inexact_aggregate_shows() -> None:
    page = text(summary(secagg=[round_(0), round_(1, aggregate_exact=False)]))
    assert row(page, "aggregates exact") == ["1 of 2"]


def test_clipped_and_wrapped_coordinates_are_shown_where_there_are_any() -> None:
    assert "values " not in text(summary(secagg=[round_(0)]))
    page = text(summary(fedavg=[round_(0)], secagg=[round_(0, clipped=3, wrapped=5), round_(1, wrapped=2)]))
    assert row(page, "values clipped") == ["0", "3"]
    assert row(page, "values wrapped") == ["0", "7"]


def test_a_verdict_is_shown_of_protocols_over_a_graph_of_neighbours() -> None:
    page = text(summary(lightsecagg=[round_(0)]))
    assert "reliable" not in page
    assert "private" not in page
    judged = [round_(0, reliable=True, private=True), round_(1, reliable=False, private=True)]
    page = text(summary(lightsecagg=[round_(0)], ccesa=[*judged, round_(2)]))
    assert row(page, "reliable") == ["-", "1 of 2"]
    assert row(page, "private") == ["-", "2 of 2"]
    page = text(summary(ccesa=[round_(0, reliable=False, private=False)]))
    assert row(page, "reliable") == row(page, "private") == ["0 of 1"]


def test_refused_messages_are_counted_where_there_are_any() -> None:
    assert "refused" not in text(summary(secagg=[round_(0)]))
    refused = [
        round_(0, refused={"share: does not authenticate": 3, "survivors: asks for a second set": 1}),
        round_(1, refused={"upload: malformed": 2}),
    ]
    page = text(summary(fedavg=[round_(0)], secagg=refused))
    assert row(page, "messages refused") == ["0", "6"]


def test_aborted_rounds_are_counted_apart_and_named() -> None:
    page = text(summary(secagg=[round_(0), round_(1, reason="upload: 5 users answered, 6 needed")]))
    assert row(page, "completed") == ["1 of 2"]
    assert row(page, "total") == ["7.000"]
    assert "secagg, round 1 aborted: upload: 5 users answered, 6 needed" in page


def test_drop_out_rates_get_a_block_each() -> None:
    slow = round_(1, 0.3, span_s=dict.fromkeys(PHASES, 9.0))
    page = text(summary(secagg=[round_(0, 0.1), slow]))
    before, after = page.split("drop-out 30%")
    assert "drop-out 10%" in before
    assert row(before, "upload") == ["3.000"]
    assert row(after, "upload") == ["9.000"]


def test_asynchronous_runs_show_staleness() -> None:
    page = text(summary({"0": 1, "2": 3}, fedbuff=[round_(0)]))
    assert "per aggregation" in page
    assert row(page, "mean staleness") == ["1.50"]
    assert row(page, "discarded as stale") == ["2"]


def test_many_protocols_with_long_names_fit_80_columns() -> None:
    names = [f"lightsecagg_async_poly_{k}" for k in range(6)]
    page = text(summary({"0": 1}, **{name: [round_(0)] for name in names}))
    assert max(map(len, page.splitlines())) <= 80
    assert page.count("test accuracy") == 2


def test_nothing_finished_is_a_table_of_dashes() -> None:
    page = text(summary(secagg=[round_(0, reason="selection: 0 of 9 users available")]))
    assert row(page, "total") == ["-"]


def test_progress_tells_round_time_and_accuracy() -> None:
    console = Console(file=StringIO(), width=100, force_terminal=True)
    with progress(console, 40, "aggregations") as watch:
        watch(Progress("fedbuff", 3, 40, 12.5, 0.875))
    assert isinstance(console.file, StringIO)
    shown = console.file.getvalue()
    for part in ("fedbuff", "3/40", "t = 12.5 s", "acc 0.875"):
        assert part in shown
