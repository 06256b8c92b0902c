"""docs/realism.md: its scenarios run, its keys are those of the schema, its figures those that it cites."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

import pytest
import yaml

import simfl
from simfl.random_streams import Streams
from simfl.runs.users import UserPopulation
from simfl.scenario.load import load
from tests.docs.pages import ROOT, blocks, scenario_pages
from tests.engine.harness import SYNC

PAGE = ROOT / "docs" / "realism.md"
TEXT = PAGE.read_text(encoding="utf-8")
SHOWN = [yaml.safe_load(block.text) for block in blocks(PAGE, "yaml")]
MIXED = ROOT / "scenarios" / "mixed_links.yaml"


def joined(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Return a mapping with the keys of another, which has its way, also within those that both have, unless
    it names a kind."""
    for key, value in more.items():
        inner = base.get(key)
        within = isinstance(inner, dict) and isinstance(value, dict) and "kind" not in value
        base[key] = joined(inner, value) if within else value
    return base


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: "-".join(shown))
def test_its_scenarios_run(shown: dict[str, Any]) -> None:
    world = joined(deepcopy(SYNC), shown)
    world["population"]["users"] = 80
    world |= {"payload": "shadow", "rounds": 2, "detect": {"disconnect": 0.1}}
    summary = simfl.run(world).summary["protocols"]["fedavg"]
    assert [r["status"] for r in summary["rounds"]] == ["completed"] * 2


def test_there_is_one_for_each_part() -> None:
    assert len(SHOWN) == 4
    assert [key for shown in SHOWN for key in shown] == [
        "network", "population", "selection", "dropout", "learning", "population",
    ]  # fmt: skip


def test_its_keys_are_those_of_the_schema() -> None:
    reference = scenario_pages()
    cells = re.findall(r"^\| (`.*?`) \|", TEXT, re.M)
    assert len(cells) > 25
    for cell in cells:
        words = re.findall(r"[a-z_]\w*", " ".join(re.findall(r"`(.*?)`", cell)))
        values = {"p", "q", "f", "all"}
        missing = [word for word in words if f"`{word}`" not in reference and word not in values]
        assert not missing, f"{cell}: {missing}"


def test_its_figures_of_a_radio_are_those_of_its_sentence() -> None:
    (up, down), beta, (tail, tail_s) = (
        re.findall(pattern, TEXT)[0]
        for pattern in (
            r"alpha = ([\d.]+) mW for each Mbit/s up and ([\d.]+)\s+down",
            r"beta = ([\d.]+) mW",
            r"then (\d+) mW for ([\d.]+) s",
        )
    )
    radio = {
        "up_j_per_mb": round(float(up) * 8 / 1000, 3),
        "down_j_per_mb": round(float(down) * 8 / 1000, 3),
        "active_w": round(float(beta) / 1000, 3),
        "tail_w": float(tail) / 1000,
        "tail_s": float(tail_s),
        "idle_w": 0.0,
    }
    assert SHOWN[-1]["population"]["energy"]["radio"] == radio
    mixed = yaml.safe_load(MIXED.read_text(encoding="utf-8"))
    assert mixed["population"]["classes"]["lte"]["energy"]["radio"] == radio
    assert f"{radio['tail_w'] * radio['tail_s']:.1f} J each time" in TEXT


def test_its_count_of_a_class_is_that_of_the_scenario() -> None:
    s = load(MIXED)
    people = UserPopulation.of(s, Streams(s.seed), lambda: pytest.fail("nobody asks what users hold"))
    assert f"40 % of 80 users are {people.classes.sizes()['home']} here" in TEXT


def test_tests_that_it_names_are_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)`", TEXT)
    assert len(named) == 4
    assert [name for name in named if not (ROOT / name).is_file()] == []
