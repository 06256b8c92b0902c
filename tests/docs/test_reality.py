"""docs/reality.md says what the results of live runs give."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

import simfl
from benchmarks import live, live_grid
from benchmarks.live_grid import (
    BUFFERED,
    LOST,
    RESULTS,
    ROUNDS,
    RUNS,
    Cell,
    calibration,
    cells,
    read,
    scenario,
)
from docs.tools.reality import PAGE, TABLES, between
from docs.tools.reality_points import (
    APART,
    CALLED,
    calibration_of,
    in_order,
    phase_errors,
    played,
    points,
    simulate,
    tau,
)
from simfl.live.live_protocol import LiveStats
from simfl.runs.build import build
from simfl.trace import rows
from simfl.trace.rows import SERVER, Trace

MOST_DRIFT = 0.01
STORED = read("simulated")
FOUND = points(STORED)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_what_the_results_give(name: str) -> None:
    assert between(name)[2] == TABLES[name](FOUND, STORED)


def drift(cell: Cell) -> float:
    """By how much today's simulation of a cell is off the one that its runs were held against."""
    today, then = (
        sum(one["total_s"] for one in ways["a priori"]["aggregates"])
        for ways in (simulate(cell), STORED[cell.name])
    )
    return abs(today / then - 1)


@pytest.mark.ci
def test_the_evidence_is_of_todays_simulator() -> None:
    """Of the quickest cell; the slow test has the rest. Where it is not: `make live` again."""
    assert drift(next(cell for cell in played() if cell.protocol == "fedavg")) < MOST_DRIFT


@pytest.mark.slow
def test_all_evidence_is_of_todays_simulator() -> None:
    assert {cell.name: drift(cell) for cell in played() if drift(cell) >= MOST_DRIFT} == {}


def test_the_results_are_those_of_the_grid() -> None:
    names = {path.stem for path in RESULTS.glob("*.json")}
    pings = {f"ping-{cell.links}-{cell.bandwidth.replace('/', '_')}" for cell in played()}
    assert names == {cell.name for cell in played()} | pings | {"machine", "simulated"}
    for cell in played():
        runs = read(cell.name)["runs"]
        assert 1 <= len(runs) <= RUNS
        for run in runs:
            assert run["exact"]
            aggregates = run["aggregates"]
            assert len(aggregates) == len(STORED[cell.name]["a priori"]["aggregates"])
            assert all(one["total_s"] > 0 for one in aggregates)


def test_the_grid_has_all_protocols_losses_and_links() -> None:
    for links in ("wire", "kernel"):
        for bandwidth in ("2/8", "10/40"):
            own = [cell for cell in cells() if (cell.links, cell.bandwidth) == (links, bandwidth)]
            got = {(cell.protocol, lost) for cell in own for lost in cell.lost}
            assert got == {(name, lost) for name in (*ROUNDS, *BUFFERED) for lost in LOST}


@pytest.mark.ci(but=["wire"])
@pytest.mark.parametrize("links", CALLED)
def test_the_grid_is_as_the_page_says(links: str) -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    study = build(scenario(Cell("fedavg", links, "10/40", LOST)))
    assert f"{study.trainers['fedavg'].d:,} parameters, {study.scenario.population.users} users" in text
    assert f"{1e3 * float(study.people.latency_s[0]):.0f} ms each way" in text


def test_tau_is_as_counted_by_hand() -> None:
    # Five pairs agree and one does not.
    assert tau([(1, 1), (2, 2), (3, 4), (4, 3)]) == pytest.approx((5 - 1) / 6)
    # One pair is tied in what is simulated: 2 agree, none disagrees, of 3 and of 2.
    assert tau([(1, 1), (2, 2), (3, 2)]) == pytest.approx(2 / (3 * 2) ** 0.5)


def test_only_pairs_that_are_apart_have_to_be_in_order() -> None:
    near = 1 + APART / 2
    assert in_order([(1.0, 2.0), (near, 1.0)]) == (0, 0)
    assert in_order([(1.0, 2.0), (near, 1.0), (3.0, 1.5)]) == (1, 2)


def test_only_long_phases_count() -> None:
    for point in FOUND:
        assert all(real >= 0.1 * point.found.mean for real, _ in point.spans.values())
    one = next(point for point in FOUND if point.spans)
    (phase, (real, ways)), *_ = one.spans.items()
    assert phase_errors([one], "a priori", phase) == [ways["a priori"] / real - 1]


def test_a_ping_finds_what_messages_and_steps_took_longer() -> None:
    def trace(late: int) -> Trace:
        made = Trace()
        made.add(rows.Sent(0, SERVER, 1, "invite", "offline", "", 4, 4, -1, 0, 1000 + 3 * late))
        step = rows.Step(
            0, 1, "protocol", "receive", "invite", "", 0, -1, 0, 0, 50 + late, (("offline", 50 + late),)
        )
        made.add(step)
        return made

    found = calibration(trace(20_000), trace(0))
    assert found == (0.00006, 0.00002)


def test_the_pings_are_of_the_links() -> None:
    for cell in played():
        assert 0 <= calibration_of(cell).latency_s < 0.05


@pytest.mark.ci(but=["overruns1"])
@pytest.mark.parametrize(
    ("overruns", "kept", "tries"), [((0.01,), 0.01, 1), ((0.05, 0.03), 0.03, 2), ((0.03, 0.05), 0.03, 2)]
)
def test_a_run_of_a_busy_machine_is_played_again(
    overruns: tuple[float, ...], kept: float, tries: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cell, left = Cell("fedavg", "user", "2/8", LOST), list(overruns)
    plain = simfl.run(scenario(cell, payload="shadow"))
    monkeypatch.setattr(live_grid, "RESULTS", tmp_path)
    played = partial(LiveStats, 1.0, held_s=0.0, refused={}, silent=())
    monkeypatch.setattr(live, "_played", lambda s, links: (plain, played(overrun=left.pop(0))))
    live._play(cell, 0, 0.0)
    (run,) = live_grid.read(cell.name)["runs"]
    assert (run["figures"]["overrun"], run["tries"]) == (kept, tries)
    live._play(cell, 0, 0.0)  # it is there
    assert len(live_grid.read(cell.name)["runs"]) == 1
