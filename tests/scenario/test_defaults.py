"""Defaults of what every scenario would repeat, and the rates that have none."""

from __future__ import annotations

from pathlib import Path

import pytest

import simfl
from simfl.config.yaml_tree import parse, plain
from simfl.errors import ScenarioError
from simfl.scenario.load import load, load_recorded, marked_yaml, resolved_yaml
from simfl.scenario.schema import Scenario
from tests.engine.harness import ROOT

FILE = ROOT / "scenarios" / "minimal.yaml"
LINES = [line for line in FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
STATED = """
devices: {slowdown: {kind: uniform, low: 8, high: 16}, cores: 2}
server: {cores: 1, slowdown: 1.0}
detect: {disconnect: 0.0}
deadlines: {advertise: 600, shares: 600, upload: 600, consistency: 600, recovery: 600, reveal: 600}
privacy: {T: 10, D: 6}
quantization: {levels: 65536, clip: 4.0, on_overflow: error}
"""
MASKED = ["secagg", "secagg_plus", "ccesa", "lightsecagg"]


def test_shortest_scenario_has_at_most_ten_lines() -> None:
    assert len(LINES) <= 10


def test_defaults_are_those_that_a_file_could_state(tmp_path: Path) -> None:
    """Twenty users: T is 10, D is 6."""
    devices, _, blocks = STATED.strip().partition("\n")
    text = "\n".join(LINES).replace("{users: 20}", f"{{users: 20, {devices}}}")
    (tmp_path / "minimal.yaml").write_text(f"{text}\n{blocks}", encoding="utf-8")
    assert resolved_yaml(load(FILE)) == resolved_yaml(load(tmp_path / "minimal.yaml"))


@pytest.mark.parametrize(
    ("key", "missing"),
    [
        ("network.users.preset", "network.users: uplink_mbps is missing"),
        ("network.users.latency_s", "network.users.latency_s: missing"),
        ("network.server.uplink_mbps", "network.server.uplink_mbps: missing"),
        ("network.server.downlink_mbps", "network.server.downlink_mbps: missing"),
        ("network.overhead_s", "network.overhead_s: missing"),
        ("network", "network: missing"),
        ("clock", "clock: missing"),
        ("rounds", "rounds: missing"),
        ("seed", "seed: missing"),
        ("population", "population: missing"),
        ("protocols", "protocols: missing"),
    ],
)
def test_stated_keys_of_the_shortest_scenario_have_no_default(key: str, missing: str) -> None:
    content = plain(parse("\n".join(LINES), "lines"))
    *blocks, last = key.split(".")
    block = content
    for name in blocks:
        block = block[name]
    del block[last]
    with pytest.raises(ScenarioError) as error:
        load(content)
    assert any(f": {missing}" in str(problem) for problem in error.value.problems)


@pytest.mark.parametrize("users", [2, 3, 4, 5, 6, 7, 12, 50, 199])
def test_default_of_privacy_fits_any_number_of_users(users: int) -> None:
    s = load("minimal", {"population.users": users, "protocols": MASKED if users > 2 else ["lightsecagg"]})
    assert str(s.privacy) == f"T={users // 2} D={3 * users // 10} U=None"


def test_default_of_privacy_is_of_the_smallest_round() -> None:
    """Of 100 users 40 are selected, and 30 under one of the protocols."""
    protocols = {"secagg": None, "lightsecagg": {"selection": {"random": 30}}}
    s = load("minimal", {"population.users": 100, "selection": {"random": 40}, "protocols": protocols})
    assert s.privacy is not None
    assert (s.privacy.T, s.privacy.D) == (15, 9)


def test_protocols_without_masks_have_no_privacy_block() -> None:
    s = load("minimal", {"protocols": ["fedavg"]})
    assert (s.privacy, s.quantization) == (None, None)


def test_derived_privacy_follows_the_users_of_the_next_run(tmp_path: Path) -> None:
    """Not so where it was stated, as in the file of a run."""
    twenty = simfl.run(rounds=1, payload="shadow", out=tmp_path).scenario
    assert str(load(twenty, {"population.users": 8}).privacy) == "T=4 D=2 U=None"
    assert load(twenty) == twenty == load_recorded(tmp_path / "resolved.yaml")
    with pytest.raises(ScenarioError, match=r"privacy\.T: T=10 must be below N=8"):
        load(tmp_path / "resolved.yaml", {"population.users": 8})


def test_check_marks_each_key_that_the_file_leaves_out() -> None:
    text = marked_yaml(load(FILE))
    marked = {line.partition(":")[0].strip() for line in text.splitlines() if line.endswith("# filled in")}
    assert {"devices", "server", "detect", "deadlines", "privacy", "quantization", "learning"} <= marked
    stated = plain(parse("\n".join(LINES), "lines"))
    assert not marked & {*stated, *stated["network"]["users"], "users", "overhead_s"} - {"server"}
    assert Scenario.model_validate(plain(parse(text, "text"))).population == load(FILE).population
    own = load("sync_breakdown")
    assert "\nprivacy:\n" in marked_yaml(own)
    assert "\nprivacy:  # filled in\n" in text
