"""Energy in a scenario: refusals, and the integers that it becomes."""

from __future__ import annotations

from typing import Any

import pytest

from simfl.errors import ScenarioError
from simfl.population.energy import Energy
from simfl.scenario.load import load
from tests.engine.harness import SYNC
from tests.engine.test_energy import ENERGY, RADIO


def test_the_figures_become_integers() -> None:
    powers = Energy.model_validate(ENERGY).powers()
    assert (powers.cpu, powers.up, powers.down) == (2_000_000, 3 * 10**9, 10**9)
    assert (powers.active, powers.tail, powers.idle) == (1_200_000, 600_000, 30_000)
    assert powers.tail_ns == 15_000_000


@pytest.mark.parametrize("field", RADIO)
def test_a_field_of_the_radio_that_is_missing_is_refused(field: str) -> None:
    radio = {key: value for key, value in RADIO.items() if key != field}
    with pytest.raises(ScenarioError, match=rf"population\.energy\.radio\.{field}.* missing"):
        load(SYNC, {"population.energy": {"cpu_w": 1.0, "radio": radio}})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, r"population\.energy\.cpu_w.* missing"),
        ({"cpu_w": -1.0}, "must be at least 0, not -1"),
        ({"cpu_w": 1e-9}, "must be 0 or at least 1e-06, not 1e-09: it would be counted as nothing"),
        ({"cpu_w": 1.0, "gpu_w": 2.0}, "unknown key 'gpu_w'"),
        ({"cpu_w": 1.0, "radio": {**RADIO, "tail_s": -1.0}}, r"radio\.tail_s.* at least 0"),
    ],
)
def test_bad_figures_are_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        load(SYNC, {"population.energy": given})


def test_zero_may_be_written() -> None:
    scenario = load(SYNC, {"population.energy": {"cpu_w": 0.0, "radio": dict.fromkeys(RADIO, 0.0)}})
    assert scenario.population.energy is not None
