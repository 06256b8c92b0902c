"""Flower's clients as the real training: flwr's quickstart client, and small ones that show the limits."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")

import simfl
from simfl.errors import BadInput, RunFailed, ScenarioError
from simfl.learning.flower import Flower
from simfl.learning.flower_trainer import FlowerTrainer
from simfl.scenario.load import load
from simfl.trace.rows import TRAIN, Step
from tests.engine.harness import ROOT, SIX, SYNC

EXAMPLE = ROOT / "examples" / "flower.yaml"
CLIENT = '''
import random

import numpy as np
from flwr.client import ClientApp, NumPyClient


class Steps(NumPyClient):
    """Goes down by 0.5 and its number, plus draws of both global generators."""

    def __init__(self, user, users, settings, state):
        assert not state.config_records
        self.user, self.users, self.settings, self.state = user, users, settings, state

    def get_parameters(self, config):
        return [np.zeros((2, 3), np.float32), np.array([7], np.int64), np.full(4, np.random.random())]

    def fit(self, parameters, config):
        scale = config.get("scale", 0.0)
        drawn = scale * np.array([random.random(), np.random.random()])
        moved = parameters[0] - 0.5 - self.user
        moved[0, :2] += drawn
        assert parameters[1].dtype == np.int64
        FAULT
        assert config["server_round"] >= 1
        return [moved, parameters[1] + 1, parameters[2]], 10 + self.user, {}

    def evaluate(self, parameters, config):
        return float(self.user), 1 + self.user, {"accuracy": 0.25 * self.user}


class Silent(NumPyClient):
    def get_parameters(self, config):
        return [np.zeros(3)]

    def fit(self, parameters, config):
        return parameters, 1, {}


class Bare(NumPyClient):
    def fit(self, parameters, config):
        return [parameters[0] - 1], 2, {}


def client_fn(context):
    node = context.node_config
    made = Steps(node["partition-id"], node["num-partitions"], context.run_config, context.state)
    return made.to_client()


def by_cid(cid: str):
    return Steps(int(cid), 0, {}, type("State", (), {"config_records": {}})).to_client()


def silent(context):
    return Silent().to_client()


def bare(context):
    return Bare().to_client()


def first():
    return [np.full(5, 2.0)]


app = ClientApp(client_fn)
empty = ClientApp()


@empty.train()
def train(message, context):
    return message
'''


def file(folder: Path, fault: str = "pass") -> Path:
    path = folder / "clients.py"
    path.write_text(CLIENT.replace("FAULT", fault))
    return path


def trainer(
    folder: Path, name: str = "client_fn", users: int = 3, fault: str = "pass", **spec: Any
) -> FlowerTrainer:
    return FlowerTrainer(Flower(module=f"{file(folder, fault)}:{name}", **spec), users)


def seeded(k: int) -> bytes:
    return bytes([k]) * 32


@pytest.mark.parametrize("name", ["client_fn", "by_cid", "app"])
def test_an_update_is_the_difference_of_a_fit(tmp_path: Path, name: str) -> None:
    made = trainer(tmp_path, name)
    start = made.initial(seeded(1))
    assert made.d == 6 + 1 + 4
    assert [made.samples(user) for user in range(3)] == [10, 11, 12]
    assert start[0, 6] == 7
    assert not np.array_equal(start, made.initial(seeded(2)))
    updates = made.train([start] * 2, [2, 0], [seeded(1)] * 2, [0, 0])
    for row, user in zip(updates, (2, 0), strict=True):
        np.testing.assert_allclose(row, [0.5 + user] * 6 + [-1] + [0] * 4)


def test_draws_are_of_the_user_and_the_round(tmp_path: Path) -> None:
    made = trainer(tmp_path, config={"scale": 1.0})
    start = made.initial(seeded(1))

    def update(k: int) -> np.ndarray:
        return made.train([start], [0], [seeded(k)], [0])

    first, other = update(1), update(2)
    np.random.random()
    assert np.array_equal(update(1), first)
    assert not np.allclose(first[0, :2], other[0, :2])


@pytest.mark.parametrize("fault", ["pass", "raise KeyError('fit')"])
def test_an_embedding_program_draws_on_unchanged(tmp_path: Path, fault: str) -> None:
    def drawn(meanwhile: Callable[[], object]) -> list[float]:
        random.seed(1)
        np.random.seed(2)
        torch.manual_seed(3)
        with suppress(KeyError, RunFailed):
            meanwhile()
        return [random.random(), np.random.random(), torch.rand(1).item()]

    def call() -> None:
        made = trainer(tmp_path, fault=fault)
        made.train([made.initial(seeded(1))], [0], [seeded(2)], [0])

    assert drawn(call) == drawn(lambda: None)


def test_the_test_is_each_clients_by_its_num_examples(tmp_path: Path) -> None:
    made = trainer(tmp_path)
    weights = made.initial(seeded(1))
    assert made.evaluates
    np.testing.assert_allclose(made.evaluate(weights), [[0.25 * (2 + 6) / 6, (2 + 6) / 6]])
    np.testing.assert_allclose(trainer(tmp_path, evaluated=2).evaluate(weights), [[0.25 * 2 / 3, 2 / 3]])
    assert not trainer(tmp_path, evaluated=0).evaluates
    assert not trainer(tmp_path, "silent").evaluates


def test_first_parameters_may_be_a_functions(tmp_path: Path) -> None:
    made = trainer(tmp_path, "bare", initial_file=f"{tmp_path / 'clients.py'}:first")
    np.testing.assert_array_equal(made.initial(seeded(1)), np.full((1, 5), 2.0))
    with pytest.raises(
        RunFailed, match=r"user 1's fit has shapes \[\(4,\)\], the first parameters \[\(5,\)\]"
    ):
        made._flat([np.zeros(4)], "user 1's fit")


@pytest.mark.parametrize(
    ("name", "spec", "message"),
    [
        ("bare", {}, "its clients have no get_parameters: name a function .*initial_file"),
        ("silent", {"evaluated": 2}, "its clients have no evaluate: leave `evaluated` out"),
        ("empty", {}, "is a ClientApp without a client_fn, which is needed here"),
        ("nobody", {}, "has no nobody"),
    ],
)
def test_a_missing_part_of_an_app_is_named(
    tmp_path: Path, name: str, spec: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        trainer(tmp_path, name, **spec)


def test_another_num_examples_is_an_error(tmp_path: Path) -> None:
    made = trainer(tmp_path, samples=11)
    start = made.initial(seeded(1))
    made.train([start], [1], [seeded(1)], [0])
    with pytest.raises(RunFailed, match=r"user 2's fit gave num_examples=12, learning.flower.samples 11"):
        made.train([start], [2], [seeded(1)], [0])


def world(folder: Path, name: str = "client_fn", **changes: Any) -> Any:
    flower = {"module": f"{file(folder)}:{name}", "sample_s": 0.001}
    base = {key: value for key, value in SYNC.items() if key != "learning"}
    return load({**base, "quantization": {"levels": 65536, "clip": 16.0}, "learning": {"flower": flower}},
                {**SIX, **changes})  # fmt: skip


@pytest.mark.ci
def test_masked_sums_are_exact_and_time_is_stated(tmp_path: Path) -> None:
    result = simfl.run(world(tmp_path))
    for name, protocol in result.summary["protocols"].items():
        (only,) = protocol["rounds"]
        assert only["status"] == "completed"
        assert only["aggregate_exact"]
        assert only["accuracy"] == pytest.approx(0.25 * sum(u * (u + 1) for u in range(6)) / 21)
        spans = [row for row in result.traces[name] if isinstance(row, Step) and row.call == TRAIN]
        assert len({row.party for row in spans}) == 6


@pytest.mark.ci
def test_workers_and_shadow_give_the_same_trace(tmp_path: Path) -> None:
    lines = [
        list(simfl.run(world(tmp_path, **changes)).traces["lightsecagg"])
        for changes in ({}, {"workers": 2}, {"payload": "shadow"})
    ]
    assert lines[0] == lines[1] == lines[2]


def test_keys_of_other_training_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as told:
        world(
            tmp_path, **{"learning.lr": 0.3, "learning.model": "cnn", "learning.partial": {"within_s": 1.0}}
        )
    assert "learning.lr: has no effect on Flower's clients: leave it out" in str(told.value)
    assert str(told.value).count("has no effect") == 3
    with pytest.raises(ScenarioError, match=r"learning\.flower\.sample_s: missing under clock modelled"):
        world(tmp_path, **{"learning.flower": f"{file(tmp_path)}:client_fn"})


def test_a_clients_error_names_its_file_and_line(tmp_path: Path) -> None:
    scenario = world(tmp_path, **{"learning.flower.samples": 1})
    path = file(tmp_path, fault="raise LookupError('no such file')")
    line = 1 + path.read_text().split("raise LookupError")[0].count("\n")
    with pytest.raises((BadInput, RunFailed), match=rf"clients.py:{line} raised LookupError: no such file"):
        simfl.run(scenario)
    with pytest.raises((BadInput, RunFailed), match=rf"clients.py:{line} raised LookupError: no such file"):
        simfl.run(load(scenario, {"learning.flower.samples": 2}).model_copy())


@pytest.mark.ci
def test_flwrs_own_client_is_timed_masked_and_replayed(tmp_path: Path) -> None:
    changes = {
        "rounds": 2, "population.users": 3, "privacy": {"T": 1, "D": 1}, "protocols": ["lightsecagg"],
        "learning.flower.samples": 480,
    }  # fmt: skip
    took = simfl.run(EXAMPLE, {**changes, "clock": "measured"}, out=tmp_path / "measured")
    first, last = took.summary["protocols"]["lightsecagg"]["rounds"]
    assert first["aggregate_exact"]
    assert last["aggregate_exact"]
    assert last["accuracy"] > max(0.5, first["accuracy"])
    again = {"clock": {"kind": "recorded", "dir": str(tmp_path / "measured")}}
    replayed = simfl.run(EXAMPLE, {**changes, **again})
    assert list(replayed.traces["lightsecagg"]) == list(took.traces["lightsecagg"])
