"""The table of a sweep, and the progress bar."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from simfl.reports.terminal import counting
from simfl.runs.results.columns import Measure, columns_of
from simfl.runs.results.statistics import Estimate
from simfl.studies.sweep.tables import Failures
from simfl.studies.sweep.terminal import MAX_POINTS, NONE
from simfl.studies.sweep.terminal import show_sweep as show


def measures(
    total: float, half: float | None = None, exact: float | None = None, n: int = 5
) -> dict[Measure, Estimate | None]:
    """A protocol's, each phase with figures of its own."""
    out: dict[Measure, Estimate | None] = {column.measure: None for column in columns_of("sweep")}
    for number, measure in enumerate(out):
        if measure[0] in ("per_aggregate_s", "span_s"):
            out[measure] = Estimate(total + number, half, n)
    out["exact", ""] = None if exact is None else Estimate(exact, None, n)
    return out


def text(
    points: list[dict[str, Any]],
    means: Any,
    seeds: int = 5,
    width: int = 80,
    failures: Any = NONE,
    **more: Any,
) -> list[str]:
    console = Console(file=StringIO(), width=width, **more)
    show(console, "study", points, means, seeds, failures)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def test_a_mean_and_its_interval_stand_under_their_phase() -> None:
    lines = text([{"population.users": 25}], {(0, "secagg"): measures(1.5, 0.25, 1.0)})
    heading, point, mean, half = lines[2:]
    assert heading.split() == ["aggregate", "offline", "training", "upload", "recovery", "accuracy", "exact"]
    assert point == "users=25"
    assert mean.split() == ["secagg", "1.50", "2.50", "3.50", "4.50", "5.50", "-", "all"]
    assert half.split() == ["±0.25"] * 5
    for column in ("aggregate", "recovery"):
        end = heading.index(column) + len(column)
        assert mean[:end].endswith({"aggregate": "1.50", "recovery": "5.50"}[column])
        assert half[:end].endswith("±0.25")


def test_one_seed_has_no_interval_but_a_note() -> None:
    lines = text([{}], {(0, "fedavg"): measures(1.0, None, n=1)}, seeds=1)
    assert lines[0] == "study: one seed, so no interval"
    assert not any("±" in line for line in lines)


def test_seeds_without_a_value_are_counted() -> None:
    lines = text([{}], {(0, "fedavg"): measures(1.0, 0.5, n=3)})
    assert "  3 of 5 seeds" in lines[-1]


@pytest.mark.parametrize(("share", "shown"), [(1.0, "all"), (0.9996, "100.0%"), (0.5, "50.0%"), (None, "-")])
def test_exact_is_all_only_if_all_are(share: float | None, shown: str) -> None:
    lines = text([{}], {(0, "fedavg"): measures(1.0, 0.5, share)})
    assert lines[-2].split()[-1] == shown


def test_long_names_and_large_numbers_fit() -> None:
    points = [{"population.availability.probability_of_something": "x" * 60, "learning.model": "y" * 60}]
    lines = text(points, {(0, "lightsecagg_async_polynomial"): measures(123456.7, 9999.9, 0.5)})
    assert max(map(len, lines)) <= 80
    assert any(line.strip() == "lightsecagg_async_polynomial" for line in lines)
    assert any(" 123457 " in line for line in lines)


def test_keys_are_short_unless_two_end_alike() -> None:
    points = [{"dropout.rate": 0.1, "population.users": 5}, {"dropout.rate": 0.2, "population.users": 5}]
    means = {(0, "a"): measures(1.0), (1, "a"): measures(1.0)}
    assert [line for line in text(points, means, 1) if "=" in line] == [
        "rate=0.1, users=5",
        "rate=0.2, users=5",
    ]
    points = [{"network.users.latency_s": 1, "population.users": 5, "selection.users": 3}]
    (line,) = (line for line in text(points, {(0, "a"): measures(1.0)}, 1) if "=" in line)
    assert line == "latency_s=1, population.users=5, selection.users=3"


def test_mappings_are_shown_only_where_points_differ_in_them() -> None:
    means = {(0, "a"): measures(1.0), (1, "a"): measures(1.0)}
    points = [{"users": 1, "privacy": {"T": 1}}, {"users": 2, "privacy": {"T": 2}}]
    assert [line for line in text(points, means, 1) if "=" in line] == ["users=1", "users=2"]
    points = [{"users": 1, "privacy": {"T": 1}}, {"users": 1, "privacy": {"T": 2}}]
    assert next(line for line in text(points, means, 1) if "=" in line) == 'users=1, privacy={"T": 1}'


def test_a_wide_grid_is_cut_with_a_word() -> None:
    many = MAX_POINTS + 5
    lines = text([{"n": n} for n in range(many)], {(n, "a"): measures(1.0) for n in range(many)})
    assert lines[-1] == f"... and 5 of {many} points more: means.csv has them all"
    assert len([line for line in lines if line.startswith("n=")]) == MAX_POINTS


def test_no_colour_off_a_terminal_and_none_if_it_is_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    means = {(0, "a"): measures(1.0, 0.5)}
    assert not any("\x1b" in line for line in text([{"n": 1}], means))
    assert any("\x1b" in line for line in text([{"n": 1}], means, force_terminal=True))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not any("\x1b[3" in line for line in text([{"n": 1}], means, force_terminal=True))


@pytest.mark.parametrize("terminal", [True, False])
def test_the_remaining_time_is_shown_on_a_terminal_only(terminal: bool) -> None:
    """Two of eight in 30 s: 90 s more."""
    now = 100.0
    console = Console(file=StringIO(), width=80, force_terminal=terminal, get_time=lambda: now)
    with counting(console, "study", 8) as watch:
        now += 30
        watch(2)
    assert isinstance(console.file, StringIO)
    shown = console.file.getvalue()
    assert ("2/8" in shown) == terminal
    assert ("0:01:30 left" in shown) == terminal
    assert bool(shown) == terminal


def test_a_point_of_a_mapping_alone_has_a_label() -> None:
    points = [{"dropout": "none"}, {"dropout": {"per_step": 0.08}}]
    lines = text(points, {(k, "secagg"): measures(1.0) for k in (0, 1)})
    assert [line for line in lines if line.startswith("dropout=")] == [
        "dropout=none",
        'dropout={"per_step": 0.08}',
    ]


def test_failed_rounds_have_their_reasons() -> None:
    failures = {(0, "secagg"): Failures([("upload: 4 to 5 users", 3), ("a", 1)], 90, "round")}
    lines = text([{}], {(0, "secagg"): measures(1.0)}, failures=failures)
    assert "  4 of 90 rounds failed: 3 x upload: 4 to 5 users; 1 x a" in lines


def test_narrow_terminals_lose_no_figure() -> None:
    means = {(0, "secagg"): measures(1.0, 0.25, 1.0)}
    narrow, wide = text([{}], means, width=30), text([{}], means)
    numbers = [re.findall(r"[\d.]+", " ".join(lines[2:])) for lines in (narrow, wide)]
    assert sorted(numbers[0]) == sorted(numbers[1])
    assert max(map(len, narrow)) <= 30 or max(map(len, narrow[2:])) <= 30
