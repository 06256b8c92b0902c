"""The models themselves: shorthands, what is frozen, and the JSON Schema for editors."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from simfl.config import blocks
from simfl.learning.partition import AnyPartition, Dirichlet
from simfl.protocols.staleness import AnyStaleness, Polynomial
from simfl.scenario import schema, world
from simfl.scenario.load import json_schema, load, resolved_yaml
from simfl.world.availability import Always, AnyAvailability, Bernoulli, Trace
from simfl.world.dropout import AnyDropout, NoLosses, PerStep, Rate, WorstCase
from simfl.world.numbers import FileColumn, PerUser
from simfl.world.selection import AnySelection, Random
from tests.scenario.worlds import SYNC, read, write
from tests.sizes import examples


@pytest.mark.parametrize(
    ("block", "short", "meant"),
    [
        (world.Clock, "modelled", world.Modelled()),
        (world.Clock, "recorded:a:b", world.Recorded(dir="a:b")),
        (world.Clock, {"recorded": "a"}, world.Recorded(dir="a")),
        (blocks.Distribution, 2, blocks.Fixed(value=2)),
        (blocks.Distribution, {"fixed": 2}, blocks.Fixed(value=2)),
        (blocks.Distribution, {"exponential": 2}, blocks.Exponential(mean=2)),
        (blocks.Distribution, {"quantiles": [[0, 1], [1, 3]]}, blocks.Quantiles(points=((0, 1), (1, 3)))),
        (PerUser, 2, blocks.Fixed(value=2)),
        (PerUser, {"file": "a.csv", "column": "x"}, FileColumn(file="a.csv", column="x")),
        (AnyAvailability, "always", Always()),
        (AnyAvailability, {"bernoulli": [0.1, 0.9]}, Bernoulli(p=(0.1, 0.9))),
        (world.Detect, {"disconnect": 0}, world.ByDisconnect(delay_s=0)),
        (AnyDropout, "none", NoLosses()),
        (AnyAvailability, "trace:a.csv", Trace(file="a.csv")),
        (AnyAvailability, {"trace": "a.csv"}, Trace(file="a.csv")),
        (AnyDropout, {"rate": 0.1}, Rate(rate=0.1)),
        (AnyDropout, {"worst_case": 0.1}, WorstCase(fraction=0.1)),
        (AnyDropout, {"worst_case": [0.1, 0.3]}, WorstCase(fraction=(0.1, 0.3))),
        (AnyDropout, {"per_step": 0.1}, PerStep(q=0.1, when="before_send")),
        (AnyPartition, {"dirichlet": 0.1}, Dirichlet(beta=0.1)),
        (AnyStaleness, "polynomial", Polynomial(alpha=1.0)),
        (AnySelection, {"random": 5}, Random(users=5)),
    ],
)
def test_shorthands(block: Any, short: Any, meant: blocks.Block) -> None:
    assert TypeAdapter(block).validate_python(short) == meant


def test_the_prime_for_transforms_has_a_name() -> None:
    assert schema.FieldOfSums.model_validate({"q": "ntt"}) == schema.FieldOfSums(q=2147352577)


def test_presets_fill_missing_rates() -> None:
    link = world.UserLink.model_validate({"preset": "4g", "uplink_mbps": 5, "latency_s": 0})
    assert (link.uplink_mbps, link.downlink_mbps) == (5.0, 98.0)


@pytest.mark.parametrize("empty", [{"bernoulli": []}, {"kind": "bernoulli", "p": []}])
def test_a_list_of_probabilities_is_not_empty(empty: Any) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(AnyAvailability).validate_python(empty)


def test_a_scenario_is_frozen(tmp_path: Path) -> None:
    scenario = read(tmp_path, SYNC)
    with pytest.raises(ValidationError):
        scenario.rounds = 5


def test_cohort_is_the_number_of_selected_users(tmp_path: Path) -> None:
    assert read(tmp_path, SYNC).cohort == 100
    assert read(tmp_path, SYNC, {"selection.users": 90}).cohort == 90


@settings(deadline=None, max_examples=examples(25))
@given(
    name=st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,79}", fullmatch=True),
    overhead=st.floats(0, 1e9),
    seed=st.integers(0, 2**63 - 1),
    rates=st.lists(st.floats(0, 1), min_size=1, max_size=4),
)
def test_resolved_scenarios_read_back_equal(
    tmp_path_factory: pytest.TempPathFactory, name: str, overhead: float, seed: int, rates: list[float]
) -> None:
    folder = tmp_path_factory.getbasetemp()
    values = {"name": name, "network.overhead_s": overhead, "dropout.rate": rates}
    scenario = load(write(folder, SYNC), values, seed=seed)
    assert load(write(folder, resolved_yaml(scenario), "resolved.yaml")) == scenario


rule_of_scenarios = cache(json_schema)  # made once for all cases


# --- JSON Schema --------------------------------------------------------------------------------
def fits(value: Any, rule: dict[str, Any], root: dict[str, Any]) -> bool:
    """The few words of JSON Schema that pydantic writes for a scenario."""
    if "$ref" in rule:
        return fits(value, root["$defs"][rule["$ref"].rpartition("/")[2]], root)
    types: dict[str, Any] = {
        "object": dict, "array": list, "string": str, "integer": int, "number": (int, float),
        "boolean": bool, "null": type(None),
    }  # fmt: skip
    good = "type" not in rule or isinstance(value, types[rule["type"]])
    good = good and ("const" not in rule or value == rule["const"])
    good = good and ("enum" not in rule or value in rule["enum"])
    good = good and ("not" not in rule or not fits(value, rule["not"], root))
    good = good and ("anyOf" not in rule or any(fits(value, option, root) for option in rule["anyOf"]))
    good = good and ("oneOf" not in rule or sum(fits(value, option, root) for option in rule["oneOf"]) == 1)
    good = good and ("pattern" not in rule or re.search(rule["pattern"], value) is not None)
    if good and isinstance(value, dict):
        rules, others = rule.get("properties", {}), rule.get("additionalProperties", True)
        good = set(rule.get("required", [])) <= set(value)
        good = good and rule.get("minProperties", 0) <= len(value) <= rule.get("maxProperties", 99)
        for key, inner in value.items():
            of_key = rules.get(key, others)
            good = good and (of_key is True or (of_key is not False and fits(inner, of_key, root)))
    if good and isinstance(value, list) and "items" in rule:
        good = all(fits(inner, rule["items"], root) for inner in value)
    return good


WORLD = {
    "seed": 1,
    "clock": "modelled",
    "rounds": 3,
    "population": {"users": 100, "devices": {"slowdown": 5}},
    "network": {
        "users": {"preset": "4g", "latency_s": 0.05},
        "server": {"uplink_mbps": 1000, "downlink_mbps": 1000},
        "overhead_s": 0.001,
    },
    "detect": {"disconnect": 0.5},
    "deadlines": {"upload": 60},
    "protocols": ["fedavg"],
}


@pytest.mark.parametrize(
    "block",
    [
        {},
        {"clock": "recorded:runs/a"},
        {"clock": {"kind": "recorded", "dir": "runs/a"}},
        {"dropout": "none"},
        {"dropout": {"rate": 0.1}},
        {"dropout": 0.1},
        {"dropout": "20%"},
        {"dropout": {"rate": "20%", "at": "shares"}},
        {"deadlines": {"upload": "5s"}},
        {"deadlines": {"upload": {"kind": "fixed", "after_s": "5 ms"}}},
        {"dropout": {"kind": "rate", "rate": [0.1, 0.2], "at": "shares"}},
        {"dropout": {"worst_case": [0.1, 0.2]}},
        {"dropout": {"kind": "per_step", "q": 0.1, "when": "mid_send"}},
        {"selection": {"random": 5}},
        {"field": {"q": "ntt"}},
        {"field": {"q": 101}},
        {"protocols": {"fedavg": None, "secagg": {"t": 5}, "mine": {"protocol": "lightsecagg"}, "x": {}}},
        {"protocols": {"fedbuff": {"staleness": "constant"}}},
    ],
)
def test_the_json_schema_accepts_shorthands(block: dict[str, Any]) -> None:
    rule = rule_of_scenarios()
    assert fits(WORLD | block, rule, rule)


@pytest.mark.parametrize(
    "block",
    [
        {"seeed": 1},
        {"clock": "sundial"},
        {"dropout": {"rte": 0.1}},
        {"dropout": {"kind": "rate", "rate": "200"}},
        {"deadlines": {"upload": {"kind": "fixed", "after_s": "5 parsec"}}},
        {"rounds": "x"},
        {"field": {"q": "nt"}},
        {"protocols": {"fedavg": 5}},
    ],
)
def test_the_json_schema_still_refuses(block: dict[str, Any]) -> None:
    rule = rule_of_scenarios()
    assert not fits(WORLD | block, rule, rule)


def test_the_json_schema_is_json() -> None:
    assert json.loads(json.dumps(json_schema()))["$schema"].startswith("https://json-schema.org/")
