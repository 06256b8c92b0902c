"""The laws hold of good runs, and each finds a row that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import simfl
from simfl.engine.battery import Battery
from simfl.runs.build import build
from simfl.runs.folder.result import Result
from simfl.trace.rows import Aggregated, End, Presence, Row, Sent, Spent, Step, Surplus, TimerSet, Trace
from tests.fuzz import batteries, invariants, judged, world_laws
from tests.fuzz.mutants import SEEDS


@cache
def run(name: str) -> Result:
    more = {"payload": "shadow", "workers": 0, "population.availability": "always"}
    return simfl.run(SEEDS / f"{name}.yaml", {} if name in ("listed", "world") else more)


def changed(name: str, kind: type[Any], at: int, change: Callable[[Any], Any]) -> Result:
    """A run with one row of its first protocol changed: the `at`-th of its kind."""
    good = run(name)
    first, rows = next(iter(good.traces.items()))
    number = [i for i, row in enumerate(rows) if isinstance(row, kind)][at]
    traces = {**good.traces, first: replaced(rows, number, change(rows[number]))}
    return Result(good.scenario, traces, good.measured)


def replaced(rows: Trace, number: int, other: Row) -> Trace:
    """The rows with another one in a place."""
    return Trace(other if i == number else row for i, row in enumerate(rows))


@pytest.mark.ci
@pytest.mark.parametrize("name", ["tiny", "rounds", "buffer", "listed", "world"])
def test_laws_hold_of_good_runs(name: str, tmp_path: Path) -> None:
    run(name).write(tmp_path)
    invariants.check(run(name), tmp_path)


@pytest.mark.parametrize(
    ("rule", "name", "kind", "at", "change"),
    [
        ("rounds_adjoin", "tiny", End, 1, lambda row: row._replace(start=row.start + 1)),
        ("number_of_rounds", "tiny", Aggregated, 0, lambda row: row._replace(round=1)),
        ("members_were_selected", "tiny", Aggregated, 0, lambda row: row._replace(members=((9, "", 0),))),
        ("members_were_selected", "buffer", Aggregated, 1, lambda row: row._replace(members=row.members[:2])),
        ("members_have_trained", "buffer", Sent, 6, lambda row: row._replace(kind="model")),
        ("members_have_trained", "tiny", Step, 7, lambda row: row._replace(left=1)),
        ("causes_come_first", "tiny", Step, 3, lambda row: row._replace(ready=row.ready - 1)),
        ("causes_come_first", "tiny", Sent, 3, lambda row: row._replace(cause=10**6)),
        ("steps_are_whole", "tiny", Step, 3, lambda row: row._replace(segments=(("upload", 1),))),
        ("lanes_are_exclusive", "tiny", Step, 3, lambda row: row._replace(lane="training", party=-1)),
        ("messages_are_whole", "tiny", Sent, 8, lambda row: row._replace(bytes=row.bytes - 1)),
        ("messages_are_possible", "tiny", Sent, 8, lambda row: row._replace(sent=row.sent + 10**7)),
        ("presence_alternates", "listed", Presence, 0, lambda row: row._replace(online=True)),
        ("deadlines_are_as_set", "tiny", TimerSet, 0, lambda row: row._replace(fires=row.fires + 1)),
    ],
)
def test_laws_find_a_bad_row(
    rule: str, name: str, kind: type[Any], at: int, change: Callable[[Any], Any]
) -> None:
    bad = changed(name, kind, at, change)
    assert rule in {found for found, problems in rules(bad) if list(problems)}


def rules(result: Result) -> list[tuple[str, Any]]:
    """The laws of the first protocol's rows, without what was derived from them."""
    name, rows = next(iter(result.traces.items()))
    good = run_named(result)
    summary = good.summary["protocols"][name]
    derived = judged.Run(result.scenario, name, rows, good.rounds[name], summary, build(result.scenario))
    return [(rule.__name__, rule(derived)) for rule in invariants.RULES]


def run_named(result: Result) -> Result:
    """The good run of the same scenario."""
    return next(run(name) for name in ("tiny", "buffer", "listed") if run(name).scenario == result.scenario)


def test_sums_are_made_afresh() -> None:
    """Of what is reported."""
    good = run("tiny")
    name, rows = next(iter(good.traces.items()))
    rounds, summary = good.rounds[name], good.summary["protocols"][name]
    rounds[0].critical[next(iter(rounds[0].critical))] += 1
    rounds[0].span["upload"] = 10**15
    summary["rounds"][0]["bytes_up"] += 1
    bad = judged.Run(good.scenario, name, rows, rounds, summary, build(good.scenario))
    for rule in (invariants.critical_path_adds_up, invariants.spans_fit, invariants.bytes_add_up):
        assert list(rule(bad))


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_files_are_strict_json(constant: str, tmp_path: Path) -> None:
    good = run("tiny")
    good.write(tmp_path)
    path = tmp_path / "summary.json"
    path.write_text(path.read_text().replace('"seed": 1', f'"seed": {constant}'))
    assert any("summary.json" in problem for problem in invariants.files(good, tmp_path))


def test_folders_are_read_back(tmp_path: Path) -> None:
    run("tiny").write(tmp_path)
    bad = changed("tiny", Step, 0, lambda row: row._replace(what="else"))
    assert list(invariants.files(bad, tmp_path)) == ["the folder is not read back as it was"]


def test_a_folder_that_is_refused_is_found(tmp_path: Path) -> None:
    run("tiny").write(tmp_path)
    (tmp_path / "trace.jsonl").write_text("{}\n")
    assert any("is refused" in problem for problem in invariants.files(run("tiny"), tmp_path))


def world() -> judged.Run:
    """The first protocol's run in a world with all that users can differ in."""
    good = run("world")
    name, rows = next(iter(good.traces.items()))
    summary = good.summary["protocols"][name]
    return judged.Run(good.scenario, name, Trace(rows), good.rounds[name], summary, build(good.scenario))


def worse(run: judged.Run, kind: type[Any], change: Callable[[Any], Any]) -> None:
    """Change the first row of a kind for which there is a change."""
    number, row = next((i, r) for i, r in enumerate(run.rows) if isinstance(r, kind) and change(r))
    run.rows = replaced(run.rows, number, change(row))


@pytest.mark.ci(but=["Sent"])
@pytest.mark.parametrize(
    ("rule", "kind", "change"),
    [
        ("messages_are_possible", Sent, lambda row: row.arrived and row._replace(size=10**9, bytes=10**9)),
        ("server_is_not_exceeded", Sent, lambda row: row.arrived and row._replace(size=10**12)),
        ("energy_adds_up", Spent, lambda row: row._replace(amounts=(("upload", "cpu", 1),))),
        ("energy_is_of_work", Spent, lambda row: row.party >= 0 and row._replace(amounts=())),
        ("partial_work_fits", Step, lambda row: row.call == "train" and row._replace(end=row.end + 10**12)),
        ("surplus_are_told_once", Surplus, lambda row: row._replace(users=())),
    ],
)
def test_laws_of_worlds_find_a_bad_row(rule: str, kind: type[Any], change: Callable[[Any], Any]) -> None:
    bad = world()
    worse(bad, kind, change)
    assert list(getattr(world_laws, rule)(bad))


@pytest.mark.parametrize("key", ["users", "invited", "aggregated", "surplus"])
def test_classes_are_counted_afresh(key: str) -> None:
    bad = world()
    assert not list(world_laws.classes_add_up(bad))
    bad.summary["classes"]["home"][key] += 1
    assert list(world_laws.classes_add_up(bad))
    bad.summary["classes"]["home"][key] -= 1  # the run is kept


def test_members_are_not_surplus() -> None:
    bad = world()
    bad.rounds[0] = replace(bad.rounds[0], surplus=(bad.rounds[0].members[0][0],))
    assert list(world_laws.invited_are_accounted_for(bad))


@pytest.mark.parametrize("level", [-1, 10**30])
def test_levels_of_batteries_are_looked_at(level: int) -> None:
    powers = world().people.powers[0]
    assert powers is not None
    assert powers.store is not None
    battery = Battery(powers.store, 0)
    with batteries.watched() as seen:
        battery.pay(0)
        assert list(seen.seen.values()) == [battery]
        battery.level = level
        with pytest.raises(judged.Broken):
            seen.look(battery)


def test_energy_that_no_battery_gave_is_found() -> None:
    seen = batteries.Watched()
    powers = world().people.powers[0]
    assert powers is not None
    assert powers.store is not None
    for user in range(10):
        seen.look(Battery(powers.store, user))
    with pytest.raises(judged.Broken):
        seen.check(run("world"))
