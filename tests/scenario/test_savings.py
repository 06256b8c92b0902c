"""The block `savings`: what it refuses, and where."""

from __future__ import annotations

from typing import Any

import pytest

from simfl.errors import ScenarioError
from simfl.scenario.load import load

NOISE = {"mechanism": "skellam", "clip": 1.0, "noise_multiplier": 0.5, "bits": 16}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"savings.random_k": 0}, "savings.random_k: must be above 0, not 0"),
        ({"savings.random_k": 1}, "savings.random_k: must be below 1, not 1"),
        ({"savings": {}}, "savings.random_k: missing"),
        (
            {"protocols": ["fedavg", "secagg"]},
            "savings: does not go with protocol fedavg: its sums are over the reals, and it sends updates as",
        ),
        (
            {"protocols": ["lightsecagg_async"], "buffer": {"K": 3, "staleness_bound": 5}},
            "savings: does not go with protocol lightsecagg_async: updates of a buffer are of no",
        ),
        ({"dp": NOISE, "quantization": None}, "savings: must be left out under dp, whose noise and steps"),
        ({"record_updates": True}, "record_updates: must be false with savings: attacks would compare whole"),
    ],
)
def test_a_wrong_value_is_refused_with_its_reason(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load("scenarios/savings.yaml", overrides)
    assert message in str(caught.value)
