"""Link models and outages in scenarios: short forms, files, and what is wrong at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

import simfl
from simfl.errors import ScenarioError
from simfl.runs.build import build
from simfl.runs.folder.identity import scenario_key
from simfl.scenario.load import load, resolved_yaml
from simfl.world.outages import Cells, Everybody, OfClass, Share
from tests.scenario.worlds import SYNC, problems, read, swap, write

USERS = "users: {preset: 4g, latency_s: 0.05"
SERVER = "server: {uplink_mbps: 1000, downlink_mbps: 1000"
RECORDED = "{kind: mahimahi, up_file: traces/a.up, down_file: traces/a.down}"
AGAIN = "every_s: {exponential: 30}, lasts_s: 10"


def varying(link: str, varies: str) -> str:
    return swap(SYNC, (link, f"{link}, varies: {varies}"))


def hit(*outages: str) -> str:
    return swap(SYNC, ("  overhead_s: 1e-3\n", f"  overhead_s: 1e-3\n  outages: [{', '.join(outages)}]\n"))


@pytest.mark.ci
@pytest.mark.parametrize("link", [USERS, SERVER])
def test_files_are_found_beside_the_scenario_and_count(tmp_path: Path, link: str) -> None:
    """As the trace of an availability: by their content, not by their name."""
    traces = tmp_path / "traces"
    traces.mkdir()
    for name in ("a.csv", "b.csv"):
        (traces / name).write_text("from_s,up_mbps,down_mbps\n0,1,1\n")
    for name in ("a.up", "a.down"):
        (traces / name).write_text("1\n5\n")

    def key(varies: str) -> str:
        scenario = read(tmp_path, varying(link, varies))
        build(scenario)
        assert load(write(traces, resolved_yaml(scenario))) == scenario
        return scenario_key(scenario, "code")

    assert key("{steps: traces/a.csv}") == key("{steps: traces/b.csv}") != key("steady")
    before = key(RECORDED)
    (traces / "a.down").write_text("1\n6\n")
    assert key(RECORDED) != before


def test_wrong_file_is_reported_before_a_run(tmp_path: Path) -> None:
    scenario = read(tmp_path, varying(SERVER, "{steps: none.csv}"))
    with pytest.raises(
        ScenarioError, match=r"world.yaml:7: network\.server\.varies\.steps: .*none\.csv: cannot be read"
    ):
        build(scenario)
    one = "classes: {slow: {share: 1, network: {preset: 4g, latency_s: 0.1, varies: {steps: none.csv}}}}"
    scenario = read(tmp_path, swap(SYNC, ("{users: 100, ", f"{{{one}, users: 100, ")))
    path = r"population\.classes\.slow\.network\.varies\.steps"
    with pytest.raises(ScenarioError, match=rf"world.yaml:4: {path}: .*none\.csv: cannot be read"):
        build(scenario)


def test_groups_of_an_outage_have_short_forms(tmp_path: Path) -> None:
    listed = [f"{{of: {of}, {AGAIN}}}" for of in ("all", "{share: 0.1}", "{cells: 20}")]
    outages = read(tmp_path, hit(*listed)).network.outages
    assert [outage.of for outage in outages] == [Everybody(), Share(share=0.1), Cells(cells=20)]
    classes = ("{users: 100, ", "{classes: {4g: {share: 1}}, users: 100, ")
    (outage,) = read(tmp_path, swap(hit(f"{{of: {{class: 4g}}, {AGAIN}}}"), classes)).network.outages
    assert outage.of == OfClass(name="4g")


MISTAKES = [
    (hit("{of: all}"), "network.outages.0: give from_s and to_s, or every_s and lasts_s, not none"),
    (hit(f"{{of: all, {AGAIN}}}", f"{{of: {{class: 4g}}, {AGAIN}}}"),
     "network.outages.1.of.class: no class '4g'; the population has none"),
    (hit(f"{{of: {{share: 2}}, {AGAIN}}}"), "network.outages.0.of.share: must be at most 1, not 2"),
    (varying(USERS, "{markov: [{factor: 1, dwell_s: 0}, {factor: 0, dwell_s: 1}]}"),
     "network.users.varies.markov.0.dwell_s: must be above 0, not 0"),
    (varying(USERS, "{kind: daily, low: 2, peak_s: 0, slot_s: 60}"),
     "network.users.varies: low=2 must not be above high=1"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), MISTAKES)
def test_mistake_is_reported_at_its_key(tmp_path: Path, text: str, says: str) -> None:
    (problem,) = problems(tmp_path, text)
    place, _, message = problem.partition(": ")
    assert place.startswith("world.yaml:")
    assert message.startswith(says)


def test_an_override_reaches_into_a_model(tmp_path: Path) -> None:
    text = varying(USERS, "{markov: [{factor: 1, dwell_s: 5}, {factor: 0, dwell_s: 1}]}")
    scenario = read(tmp_path, text, {"network.users.varies.levels.1.factor": 0.5})
    assert scenario.network.users.varies.levels[1].factor == 0.5  # type: ignore[attr-defined]
    assert read(tmp_path, text, {"network.users.varies": "steady"}).network.users.varies.kind == "steady"


@pytest.mark.ci
def test_two_equal_markov_models_run_twice(tmp_path: Path) -> None:
    """Two classes with one link model that draws from quantiles, run two times in one process."""
    levels = [{"factor": factor, "dwell_s": {"quantiles": [[0, 0.1], [1, 20]]}} for factor in (1, 0.5)]
    network = {"preset": "4g", "latency_s": 0.01, "varies": {"kind": "markov", "levels": levels}}
    classes = {name: {"share": 0.5, "network": network} for name in ("a", "b")}
    changes = {"population.classes": classes, "payload": "shadow", "protocols": ["fedavg"], "rounds": 1}
    scenarios = [load("tutorial", changes) for _ in range(2)]
    traces = [simfl.run(scenario).traces for scenario in scenarios]
    assert traces[0] == traces[1]
    assert scenarios[0] == scenarios[1]
