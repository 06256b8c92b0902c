"""Every example runs, and does what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import simfl
from simfl.cli import main
from simfl.random_streams import Streams
from simfl.runs.build import build
from simfl.runs.folder.result import Result
from simfl.scenario.load import load
from simfl.trace import rows

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, **overrides: Any) -> Result:
    return simfl.run(EXAMPLES / f"{name}.yaml", {"payload": "shadow", **overrides})


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short_and_has_a_scenario(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= (150 if "(Protocol)" in text or "flwr" in text else 25)
    scenarios = [scenario.read_text(encoding="utf-8") for scenario in EXAMPLES.glob("*.yaml")]
    assert any(f"{path.name}:" in text for text in scenarios)


def test_rested_users_sit_out() -> None:
    for trace in run("rested").traces.values():
        rounds = [set(row.users) for row in trace if isinstance(row, rows.Begin)]
        assert [len(members) for members in rounds] == [4] * 6
        for index in range(1, 6):
            assert not rounds[index] & set().union(*rounds[max(0, index - 2) : index])


def test_twins_hold_the_same_samples() -> None:
    parts = build(load(EXAMPLES / "twins.yaml")).trainer.parts
    assert [len(part) for part in parts] == [120] * 12
    for first in range(0, 12, 3):
        assert parts[first].tolist() == parts[first + 1].tolist() == parts[first + 2].tolist()
    run("twins")


@pytest.mark.ci
def test_a_perceptron_learns_the_digits() -> None:
    result = run("perceptron", payload="real", protocols=["fedavg"])
    assert build(load(EXAMPLES / "perceptron.yaml")).trainer.d == 65 * 32 + 33 * 32 + 33 * 10
    first, *_, last = [r["accuracy"] for r in result.summary["protocols"]["fedavg"]["rounds"]]
    assert first < last > 0.85


def test_phones_take_part_while_they_charge() -> None:
    scenario = load(EXAMPLES / "charging.yaml")
    everyone = scenario.population.availability.times(40, Streams(scenario.seed))
    (trace,) = run("charging").traces.values()
    begun = [
        (step.about, step.ready) for step in trace if isinstance(step, rows.Step) and step.call == "begin"
    ]
    assert len(begun) >= 30
    assert all(everyone.at(int(about.split(".")[0]), at)[0] for about, at in begun)


def test_nothing_moves_in_a_tunnel() -> None:
    """No upload ends there, some wait there, and the rounds take longer than on steady links."""
    link = build(load(EXAMPLES / "tunnels.yaml")).people.links
    riding, steady = run("tunnels"), run("tunnels", **{"network.users.varies": "steady"})
    (trace,) = riding.traces.values()
    ups = [
        (row.sender, row.sent, row.arrived - 40_000_000)  # until the last bit has left, a latency earlier
        for row in trace
        if isinstance(row, rows.Sent) and row.to == rows.SERVER and row.arrived
    ]
    assert len(ups) == 4 * 20
    assert all(link(user, gone - 1).up_bps > 0 for user, _, gone in ups)
    assert any(link(user, at).up_bps == 0 for user, sent, gone in ups for at in range(sent, gone, 10**9))
    last = [result.summary["protocols"]["fedavg"]["rounds"][-1]["end_s"] for result in (riding, steady)]
    assert last[0] > 1.2 * last[1]


def test_phones_that_ran_empty_come_back_at_their_chargers() -> None:
    """They are lost while their owners use them, and online again when the charger has given a tenth."""
    s = load(EXAMPLES / "overnight.yaml")
    assert s.population.energy is not None
    store = s.population.energy.powers(20, Streams(s.seed)).store
    assert store is not None
    (trace,) = run("overnight").traces.values()
    changes = [row for row in trace if isinstance(row, rows.Presence)]
    empty = [row for row in trace if isinstance(row, rows.Lost) and row.why == "ran empty"]
    assert {(row.user, row.at) for row in empty} <= {(row.user, row.at) for row in changes if not row.online}
    assert len(empty) >= 3
    assert any(row.online for row in changes)
    for row in changes:
        charger, use = store.flow(row.user, row.at)[0]
        assert (charger, use) == (10_000_000, 50_000) if row.online else charger == 0 < 500_000 <= use


@pytest.mark.ci
def test_stale_updates_weigh_less_by_the_hinge() -> None:
    for name in ("fedbuff", "lightsecagg_async"):
        trace = run("hinge").traces[name]
        seen = {tau for row in trace if isinstance(row, rows.Aggregated) for _, _, tau in row.members}
        assert max(seen) > 2  # beyond b, where the weight falls
    hinge = load(EXAMPLES / "hinge.yaml").protocols["fedbuff"]
    assert [hinge.staleness(tau) for tau in (0, 2, 3, 5)] == [1.0, 1.0, 0.5, 0.25]  # type: ignore[attr-defined]


STUDY = """
base: dealt_pads.yaml
set: {payload: shadow, rounds: 2}
grid:
  protocols.dealt_pads.spare: [0, 1]
  selection: [all, {module: rested.py:Rested, users: 6}]
"""


@pytest.mark.ci
def test_a_study_varies_strangers_like_ours(tmp_path: Path) -> None:
    for path in EXAMPLES.iterdir():
        if path.is_file():
            (tmp_path / path.name).symlink_to(path)
    (tmp_path / "study.yaml").write_text(STUDY)
    with pytest.raises(SystemExit) as left:
        main(["sweep", str(tmp_path / "study.yaml"), "--out", str(tmp_path / "out"), "--jobs", "1"])
    assert not left.value.code
    means = (tmp_path / "out" / "means.csv").read_text(encoding="utf-8")
    assert means.count(",total_s,") == 4 * 3  # of each cell and protocol


@pytest.mark.ci
def test_the_focal_loss_is_cross_entropy_at_zero() -> None:
    overrides = {"payload": "real", "rounds": 1, "protocols": ["fedavg"]}
    ours = run("focal", **overrides, **{"learning.loss": "cross_entropy", "learning.way": "loop"})
    focal, zero = (run("focal", **overrides, **{"learning.loss.gamma": gamma}) for gamma in (2.0, 0.0))
    losses = [result.summary["protocols"]["fedavg"]["rounds"][0]["loss"] for result in (ours, zero, focal)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert abs(losses[2] - losses[0]) > 0.1
