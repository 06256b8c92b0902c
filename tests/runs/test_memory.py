"""What a run would hold: in closed form an upper bound, and forecast where that is quick."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simfl.dataplane.shadow import MemoryProbeOps
from simfl.errors import ScenarioError
from simfl.protocols.registry import PROTOCOLS
from simfl.runs import build, memory
from simfl.runs.memory import measure_memory
from simfl.scenario.load import load
from tests.engine.harness import ASYNC, SYNC, WAITS

WIDE = {"kind": "synthetic", "shape": [3000], "classes": 2, "train": 60, "test": 2}
THIN = WIDE | {"shape": [1]}


@pytest.mark.ci(but=["ccesa"])
@pytest.mark.parametrize("data", [WIDE, THIN], ids=["6000 parameters", "few"])
@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_the_bound_in_closed_form_is_one(protocol: str, data: dict[str, Any]) -> None:
    kind = PROTOCOLS[protocol]()
    # What Zhao-Sun's trusted party deals grows exponentially with the number of users.
    few = protocol == "zhao_sun"
    s = load(ASYNC if kind.asynchronous else SYNC, {
        "population.users": 8 if few else 40, "protocols": [protocol],
        "privacy": {"T": 2, "D": 2, "U": 6} if few else {"T": 10, "D": 10, "U": 30},
        "learning.dataset": data, "rounds": 2, **({} if kind.asynchronous else WAITS),
    })  # fmt: skip
    study = build.build(s)
    p = s.params(protocol, study.trainer.d)
    found = measure_memory(study.session(protocol, build.modelled(study), MemoryProbeOps(s.field.q)))
    assert found.rest > 0  # an aggregate came of it
    assert found.peak <= memory.at_most(s, protocol, p) < 40 * found.peak


@pytest.mark.ci(but=["lightsecagg"])
@pytest.mark.parametrize("protocol", ["secagg", "secagg_plus", "ccesa", "lightsecagg"])
def test_the_bound_has_the_shares_of_seeds_of_noise(protocol: str) -> None:
    """Repair of 12 of 40 users: most of what a thin model's round holds."""
    dp = {
        "mechanism": "skellam",
        "clip": 0.5,
        "noise_multiplier": 1.0,
        "bits": 16,
        "dropout": {"repair": 0.3},
    }
    s = load(SYNC, {
        "population.users": 40, "privacy": {"T": 10, "D": 10, "U": 30}, "protocols": [protocol],
        "learning.dataset": THIN, "rounds": 2, "quantization": None, "dp": dp,
    })  # fmt: skip
    study = build.build(s)
    p = s.params(protocol, study.trainer.d)
    held = measure_memory(study.session(protocol, build.modelled(study), MemoryProbeOps(s.field.q)))
    without = memory.at_most(s, protocol, replace(p, dp=None))
    assert without < held.peak <= memory.at_most(s, protocol, p) < 2 * held.peak


def test_beyond_a_size_the_bound_is_the_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = {"population.users": 6, "protocols": ["lightsecagg"], "memory_limit_gb": 0.02}
    overrides |= {"privacy": {"T": 2, "D": 2, "U": 4}, "learning.dataset": WIDE}
    wide = overrides | {"learning.dataset": WIDE | {"shape": [30_000]}, "clock": "measured"}
    with pytest.raises(ScenarioError, match=r"GB that lightsecagg holds at once"):
        build.build(load(SYNC, wide))
    monkeypatch.setattr(memory, "FORECAST_USERS", {True: 5, False: 5})
    monkeypatch.setattr(memory, "measure_memory", None)
    with pytest.raises(ScenarioError, match=r"below the 0\.\d+ GB \(an upper bound\) that lightsecagg holds"):
        build.build(load(SYNC, wide))
