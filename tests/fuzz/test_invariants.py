"""The laws hold of good runs, and each finds a row that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import simfl
from simfl.folder.result import Result
from simfl.results.trace import Aggregated, End, Presence, Sent, Step, TimerSet, Trace
from tests.fuzz import invariants
from tests.fuzz.mutants import SEEDS


@cache
def run(name: str) -> Result:
    more = {"payload": "shadow", "workers": 0, "population.availability": "always"}
    return simfl.run(SEEDS / f"{name}.yaml", more if name != "listed" else {})


def changed(name: str, kind: type[Any], at: int, change: Callable[[Any], Any]) -> Result:
    """A run with one row of its first protocol changed: the `at`-th of its kind."""
    good = run(name)
    traces = {protocol: Trace(rows) for protocol, rows in good.traces.items()}
    rows = next(iter(traces.values()))
    number = [i for i, row in enumerate(rows) if isinstance(row, kind)][at]
    rows[number] = change(rows[number])
    return Result(good.scenario, traces, good.measured)


@pytest.mark.parametrize("name", ["tiny", "rounds", "buffer", "listed"])
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
        ("messages_are_possible", "tiny", Sent, 8, lambda row: row._replace(bytes=row.bytes - 1)),
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
    derived = invariants.Run(result.scenario, name, rows, good.rounds[name], good.summary["protocols"][name])
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
    bad = invariants.Run(good.scenario, name, rows, rounds, summary)
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
