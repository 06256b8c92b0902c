"""Every number of a scenario, a study and a profile has a least and a greatest value; names are no paths."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from simfl.config.blocks import GREATEST, LEAST, as_name
from simfl.errors import ScenarioError
from simfl.runs.build import build, make_clocks
from simfl.scenario.load import load
from simfl.scenario.schema import Scenario
from simfl.scenario.study import SweepFile
from simfl.world.profiles import Profile
from tests.scenario.worlds import ASYNC, SYNC, problems, read, write


def numbers(rule: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every number of a JSON Schema, with the way to it."""
    if isinstance(rule, dict):
        if rule.get("type") in ("integer", "number") and not rule.keys() & {"const", "enum"}:
            yield place, rule
        for key, part in rule.items():
            yield from numbers(part, f"{place}.{key}")
    elif isinstance(rule, list):
        for i, part in enumerate(rule):
            yield from numbers(part, f"{place}.{i}")


@pytest.mark.parametrize("model", [Scenario, SweepFile, Profile])
def test_every_number_has_finite_bounds(model: type[BaseModel]) -> None:
    found = list(numbers(model.model_json_schema()))
    assert len(found) > {Scenario: 80, Profile: 5}.get(model, -1)
    for place, rule in found:
        least = rule.get("minimum", rule.get("exclusiveMinimum"))
        most = rule.get("maximum", rule.get("exclusiveMaximum"))
        for bound in (least, most):
            assert bound is not None, f"{place} lacks a bound: {rule}"
            assert math.isfinite(bound), place


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("deadlines.upload", 1e300, "deadlines.upload: must be at most 1e+09, not 1e+300"),
        ("deadlines.upload", 1e-10, "deadlines.upload: must be at least 1e-09, not 1e-10"),
        ("network.overhead_s", 1e300, "network.overhead_s: must be at most 1e+09, not 1e+300"),
        ("network.overhead_s", math.inf, "network.overhead_s: must be a finite number, not inf"),
        ("dropout", {"script": [{"user": 1, "at": "upload", "when": "delay", "delay_s": 1e300}]},
         "dropout.script.0.delay_s: must be at most 1e+09, not 1e+300"),
        ("population.devices.slowdown", {"kind": "lognormal", "median": 1, "sigma": 1000},
         "population.devices.slowdown.sigma: must be at most 10, not 1000"),
        ("population.devices.training_noise", 1000,
         "population.devices.training_noise: must be at most 10, not 1000"),
        ("population.availability", {"kind": "sessions", "on_s": 4e-10, "off_s": 1},
         "population.availability.on_s: must be at least 1e-09, not 4e-10"),
        ("network.server.uplink_mbps", 4e-7, "network.server.uplink_mbps: must be at least 1e-06, not 4e-07"),
        ("network.users.uplink_mbps", 4e-7, "network.users.uplink_mbps: must be at least 1e-06, not 4e-07"),
        ("quantization.clip", 1e300, "quantization.clip: must be at most 1e+09, not 1e+300"),
        ("population.users", 2**31, "population.users: must be below 2147483648, not 2147483648"),
        ("learning.lr_decay", {"factor": 2, "at": [*range(33)]},
         "learning.lr_decay.at: must have at most 32 entries, not 33"),
        ("profile", "\ud800",
         "profile: must be text, not '\\ud800': half of a surrogate pair is no character"),
        ("profile", "f" * 5000, "profile: must have at most 4096 characters: '" + "f" * 49 + "...'"),
    ],
)  # fmt: skip
def test_beyond_a_bound_is_one_message(tmp_path: Path, key: str, value: Any, says: str) -> None:
    assert problems(tmp_path, SYNC, {key: value}) == [f"overrides: {says}"]


def test_huge_number_is_reported_by_its_bits(tmp_path: Path) -> None:
    huge = 2**20_000 - 1
    for key, says in {
        "deadlines.upload": "deadlines.upload: must be a finite number, not",
        "name": "name: must be text, not",
        "rounds": "rounds: must be below 2147483648, not",
    }.items():
        (line,) = problems(tmp_path, SYNC, {key: huge})
        assert line.startswith(f"overrides: {says} a whole number of 20000 bits")
    with pytest.raises(ScenarioError, match="scenario: name: must be text, not a whole number"):
        load({"name": huge})


RULE = (
    "must be 1 to 80 letters (a-z, A-Z), digits, '-', '_' or '.', and not begin with a dot, as it names files"
)


@pytest.mark.parametrize(
    "name", ["../x", "/x", "..", ".", ".x", "", "a b", "n" * 81, "nul\0byte", "é", "x\n"]
)
def test_a_name_is_no_path(tmp_path: Path, name: str) -> None:
    (line,) = problems(tmp_path, SYNC, {"name": name})
    assert line.startswith(f"overrides: name: {RULE}: not ")
    (line,) = problems(tmp_path, SYNC, {"protocols": {name: {"protocol": "fedavg"}}})
    assert RULE in line


def test_a_wrong_name_of_an_entry_is_found_in_its_line(tmp_path: Path) -> None:
    assert problems(tmp_path, SYNC + "  a/b: {protocol: fedavg}\n") == [
        f"world.yaml:20: protocols.a/b: {RULE}: not 'a/b'"
    ]


@pytest.mark.parametrize(
    ("file", "name"),
    [("a b.yaml", "a-b"), (".hidden.yaml", "-hidden"), ("é.yaml", "-"), (f"{'n' * 99}.yaml", "n" * 80)],
)
def test_a_file_of_any_name_loads(tmp_path: Path, file: str, name: str) -> None:
    assert load(write(tmp_path, SYNC, file)).name == name == as_name(name)


def test_message_cuts_a_users_text(tmp_path: Path) -> None:
    long = "x" * 10_000
    for override in (
        {"name": long}, {long: 1}, {"clock": long}, {"detect": {long: 1}}, {"protocols": {long: {long: 1}}},
        {f"protocols.{long}.t": 1}, {"payload": long}, {"field.q": long}, {"rounds": long},
        {"learning.model": f"module:{long}"}, {"learning.lr": long},
    ):  # fmt: skip
        assert max(map(len, problems(tmp_path, SYNC, override))) < 700
    for more in (
        f"{long}: 1\n",
        f"a: !{long} 1\n",
        f"a: 0{'1' * 9999}\n",
        f"a: '{long}\n",
        f"{long}: 1\n" * 2,
    ):
        assert max(map(len, problems(tmp_path, SYNC + more))) < 700


def test_a_message_of_a_build_cuts_a_path(tmp_path: Path) -> None:
    long = "\x1b[31m" + "x" * 4000
    for key, value in {
        "profile": long, "learning.dataset": {"kind": "npz", "file": long}, "clock": {"recorded": long},
        "learning.model": f"module:{long}.py:f",
    }.items():  # fmt: skip
        with pytest.raises(ScenarioError) as refused:
            make_clocks(build(load(write(tmp_path, SYNC), {key: value})))
        assert len(str(refused.value)) < 700
        assert "\x1b" not in str(refused.value)


def test_draws_are_held_within_the_bounds(tmp_path: Path) -> None:
    from simfl.config.blocks import Exponential, LogNormal
    from simfl.random_streams import Streams

    rng = Streams(1).rng("draws")
    for wide in (LogNormal(median=GREATEST, sigma=10.0), LogNormal(median=LEAST, sigma=10.0)):
        draws = wide.draw(rng, 10_000)
        assert draws.min() >= LEAST
        assert draws.max() <= GREATEST
    assert Exponential(mean=LEAST).draw(rng, 100).min() == LEAST


def test_a_good_scenario_stays_one(tmp_path: Path) -> None:
    for text in (SYNC, ASYNC):
        read(tmp_path, text, {"name": "a.B-c_9", "horizon_s": GREATEST, "memory_limit_gb": GREATEST})
