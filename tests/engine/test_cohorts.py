"""What starts together is trained together, and nothing else changes by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simfl.dataplane.eager import EagerOps
from simfl.errors import ScenarioError
from simfl.learning.trainer import Training
from simfl.runs.build import build, make_world, operations
from simfl.scenario.load import load
from simfl.trace.rows import End, Step
from tests.engine.harness import ASYNC, SIX, SYNC, lines, of, run, script

COHORT: dict[str, Any] = {**SIX, "rounds": 3, "learning.way": "closed_form"}


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches that clients are trained in."""
    sizes: list[int] = []
    many = Training.many

    def counted(self: Training, calls: list[tuple[Any, ...]]) -> list[Any]:
        sizes.append(len(calls))
        return many(self, calls)

    monkeypatch.setattr(Training, "many", counted)
    return sizes


@pytest.mark.ci
@pytest.mark.parametrize("workers", [0, 1])
def test_a_round_is_one_batch(workers: int, batches: list[int]) -> None:
    result = run({**COHORT, "workers": workers})
    assert all(m.aggregate_exact for measured in result.measured.values() for m in measured)
    assert sum(batches) == 6 * 3 * 3
    if not workers:  # a worker may begin before the last of a round is there
        assert batches == [6] * 9


def test_every_worker_has_a_part(batches: list[int]) -> None:
    run({**COHORT, "workers": 2})
    assert sum(batches) == 6 * 3 * 3
    assert max(batches) <= 3


def test_asynchronous_users_are_trained_ahead_together(batches: list[int]) -> None:
    run({"learning.way": "closed_form"}, ASYNC)
    assert max(batches) > 1
    assert len(batches) < sum(batches)


def test_a_lost_user_has_trained_with_its_batch(batches: list[int]) -> None:
    lost = script((0, 0, "training", "after_send"), (1, 2, "upload", "before_send"))
    result = run({**COHORT, "protocols": ["fedavg"], "dropout": lost})
    (trace,) = result.traces.values()
    assert sum(batches) == len(of(trace, Step, call="train")) == 6 * 3


@pytest.mark.ci
def test_the_way_changes_no_time_and_the_model_by_rounding_only() -> None:
    """With a minibatch an epoch: in closed form, one that is smaller than others is filled up."""
    whole = {**COHORT, "learning.batch_size": 1000}
    loop = run({**whole, "learning.way": "loop"})
    cohort = run(whole)
    assert lines(cohort) == lines(loop)
    for name, measured in loop.measured.items():
        for one, other in zip(measured, cohort.measured[name], strict=True):
            assert one.loss == pytest.approx(other.loss, rel=1e-4)


@pytest.mark.ci(but=["vectorised"])
@pytest.mark.parametrize(
    ("model", "asked", "taken"),
    [
        ("logistic", "auto", "closed_form"),
        ("logistic", "loop", "loop"),
        ("logistic", "vectorised", "loop"),
        ("cnn", "auto", "loop"),
        ("cnn", "vectorised", "loop"),
    ],
)
def test_under_the_measured_clock_each_is_trained_alone(
    batches: list[int], model: str, asked: str, taken: str
) -> None:
    overrides = {"clock": "measured", "learning.way": asked, "learning.model": model}
    study = build(load(SYNC, overrides))
    assert study.trainer.way.name == taken
    ops = operations(load(SYNC, overrides))
    assert isinstance(ops, EagerOps)
    assert not ops.batching
    run(overrides)
    assert not batches


@pytest.mark.parametrize("workers", [0, 1])
def test_a_failure_among_many_names_a_step(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Training, calls: list[tuple[Any, ...]]) -> list[Any]:
        raise ValueError("no such gradient")

    monkeypatch.setattr(Training, "many", broken)
    with pytest.raises(Exception, match=r"fedavg, round 0, user \d, train.*no such gradient"):
        run({**COHORT, "protocols": ["fedavg"], "workers": workers})


# --- rules of training that a scenario gives ------------------------------------------------------
def test_clipped_updates_are_counted() -> None:
    free = run({"protocols": ["fedavg"]})
    assert free.measured["fedavg"][0].updates_clipped is None
    tight = run({"protocols": ["fedavg"], "learning.clip": {"norm": 1e-3}})
    assert tight.measured["fedavg"][0].updates_clipped == 3
    loose = run({"protocols": ["fedavg"], "learning.clip": {"value": 100.0}})
    assert loose.measured["fedavg"][0].updates_clipped == 0
    assert loose.measured["fedavg"][0].loss == free.measured["fedavg"][0].loss
    assert tight.measured["fedavg"][0].loss > free.measured["fedavg"][0].loss
    assert tight.summary["protocols"]["fedavg"]["rounds"][0]["updates_clipped"] == 3
    shadow = run({"protocols": ["fedavg"], "learning.clip": {"norm": 1e-3}, "payload": "shadow"})
    assert shadow.measured["fedavg"][0].updates_clipped is None
    assert lines(shadow) == lines(tight)


def test_clipping_takes_its_time() -> None:
    def submitting_ns(overrides: dict[str, Any]) -> int:
        (trace,) = run({"protocols": ["fedavg"], **overrides}).traces.values()
        step = of(trace, Step, call="submit")[0]
        return int(step.end - step.start)

    # 2 d multiply-adds of 4 ns on a device ten times slower
    assert submitting_ns({"learning.clip": {"norm": 1.0}}) - submitting_ns({}) == 10 * 2 * 650 * 4


@pytest.mark.ci
@pytest.mark.parametrize("rule", ["fedadam", "fedyogi"])
def test_adaptive_servers_learn(rule: str) -> None:
    result = run({**SIX, "rounds": 8, "learning.server": rule, "learning.server_lr": 0.1})
    for measured in result.measured.values():
        assert all(m.aggregate_exact for m in measured)
        assert measured[-1].accuracy > 0.8
    plain = run({**SIX, "rounds": 1})
    first = run({**SIX, "rounds": 1, "learning.server": rule, "learning.server_lr": 0.1})
    for name, trace in first.traces.items():  # one more vector operation a moment, 2 d elements of 6 ns
        other = plain.traces[name]
        assert lines(first) != lines(plain)
        late, early = (of(rows, End)[0].at for rows in (trace, other))
        assert late - early == pytest.approx(2 * 650 * 6, abs=3)


def test_training_noise_is_a_users_own() -> None:
    def times(overrides: dict[str, Any]) -> dict[tuple[int, int], int]:
        (trace,) = run({"rounds": 3, "protocols": ["fedavg"], **overrides}).traces.values()
        return {(s.party, s.round): s.end - s.start for s in of(trace, Step, call="train")}

    quiet, noisy = times({}), times({"population.devices.training_noise": 0.3})
    factors = {key: noisy[key] / quiet[key] for key in quiet}
    assert len(set(factors.values())) == 9
    assert all(0.2 < factor < 5 for factor in factors.values())
    assert times({"population.devices.training_noise": 0.3}) == noisy
    more = times({"population.devices.training_noise": 0.3, "population.users": 4})
    calm = times({"population.users": 4})
    assert all(more[key] / calm[key] == pytest.approx(factors[key], rel=1e-6) for key in quiet)


def test_noise_is_log_normal() -> None:
    scenario = load(SYNC, {"population.devices.training_noise": 0.3, "population.users": 40})
    study = build(scenario)
    draw = make_world(scenario, study.streams, study.trainer, study.people).training_noise
    assert draw is not None
    logs = np.log([draw(user, index) for user in range(40) for index in range(50)])
    assert logs.mean() == pytest.approx(0, abs=4 * 0.3 / 2000**0.5)  # four standard errors
    assert logs.std() == pytest.approx(0.3, rel=0.08)


# --- entries of one protocol ------------------------------------------------------------------------
def test_entries_may_differ_in_selection_and_partition() -> None:
    entries = {
        "all": {"protocol": "fedavg"},
        "two": {"protocol": "fedavg", "selection": {"random": 2}},
        "shards": {"protocol": "fedavg", "partition": {"shards": 1}},
    }
    result = run({"protocols": entries, "rounds": 2})
    rounds = result.rounds
    assert [r.selected for r in rounds["all"]] == [3, 3]
    assert [r.selected for r in rounds["two"]] == [2, 2]
    study = build(result.scenario)
    assert study.trainers["all"] is study.trainers["two"]
    held = {name: (counts > 0).sum(axis=1).tolist() for name, counts in study.partitions.items()}
    assert held["all"] == [10, 10, 10]
    assert max(held["shards"]) <= 5
    shares = result.summary["protocols"]["two"]["participation"]
    assert shares["C"] == [2, 2]


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({"random": 9}, "protocols.fedavg.selection.random: users=9 must not be above population.users=3"),
        ({"kind": "multi_round", "users": 3, "T": 2}, "T=2 does not divide K=3"),
        ({"partition": 2}, "users=3 is no multiple of T=K=2"),
        ({"bernoulli": 0.0}, "selection.bernoulli"),
    ],
)
def test_an_entrys_selection_is_checked(selection: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        load(SYNC, {"protocols": {"fedavg": {"selection": selection}}})


def test_a_skipped_round_lasts_as_long_as_the_server_waited() -> None:
    overrides = {
        "population.availability": {"bernoulli": 0.0},
        "selection": {"partition": 3},
        "rounds": 2,
        "protocols": ["fedavg"],
    }
    for r in run(overrides).rounds["fedavg"]:
        assert r.reason == "selection: 0 of 3 users available"
        assert r.end - r.start == 5_000_000_000  # deadlines.upload


def test_recorded_updates_add_up(tmp_path: Path) -> None:
    run({**SIX, "rounds": 2, "record_updates": True}, out=tmp_path)
    for name in SIX["protocols"]:
        with np.load(tmp_path / f"updates-{name}.npz", allow_pickle=False) as kept:
            assert kept["rounds"].tolist() == [0, 1]
            for which in (0, 1):
                mine = kept["which"] == which
                weights = kept["weights"][mine]
                mean = weights @ kept["updates"][mine].astype(np.float64) / weights.sum()
                np.testing.assert_allclose(kept["means"][which], mean, atol=1e-4)  # quantised
    assert not list(Path(tmp_path).glob("*.tmp"))
