"""A model by its size alone: in shadow it is timed and sent as any model of that size."""

from __future__ import annotations

from typing import Any

import pytest

import simfl
from simfl.errors import ScenarioError
from simfl.learning.models import MODELS
from simfl.learning.models.facts import facts
from simfl.protocols.protocol import Mode
from simfl.protocols.registry import PROTOCOLS
from simfl.scenario.load import load
from simfl.trace.rows import Row
from tests.engine.harness import ASYNC, SIX, SYNC, WAITS


def shadow(name: str, model: Any) -> list[Row]:
    world, more = (ASYNC, {}) if PROTOCOLS[name].mode is Mode.BUFFERED else (SYNC, SIX | WAITS)
    changes = {**more, "payload": "shadow", "protocols": [name], "learning.model": model}
    return list(simfl.run(load(world, changes)).traces[name])


@pytest.mark.ci(but=["[fedavg", "[lightsecagg]"])
@pytest.mark.parametrize("name", list(PROTOCOLS))
def test_it_runs_as_any_model_of_its_size(name: str) -> None:
    real = facts(MODELS["cnn"](), (1, 8, 8), 10)
    assert real.macs is not None
    rows = shadow(name, "cnn")
    assert shadow(name, {"d": real.d, "macs": float(real.macs)}) == rows
    assert shadow(name, {"d": real.d, "macs": 2.0 * real.macs}) != rows
    assert shadow(name, {"d": real.d + 1, "macs": real.macs}) != rows


def test_it_is_written_with_or_without_its_kind() -> None:
    short = load(SYNC, {"payload": "shadow", "learning.model": {"d": 5, "macs": 2.0e9}})
    long = {"kind": "size", "d": 5, "macs": 2000000000}
    assert short == load(SYNC, {"payload": "shadow", "learning.model": long})
    assert load(short, {"learning.model.d": 6}).learning.model.size() == (6, 2_000_000_000)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"d": 5, "macs": 10.0}, "learning.model: is known by its size alone.* needs payload shadow"),
        ({"d": 5}, "learning.model.macs: missing"),
        ({"d": 5, "macs": 0}, "learning.model.macs: must be at least 1, not 0"),
        ({"d": 2**31, "macs": 1}, "learning.model.d: must be below 2147483648"),
    ],
)
def test_it_is_refused_where_it_has_to_be_trained(model: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        load(SYNC, {"learning.model": model})
    with pytest.raises(ValueError, match=r"^size\(d=5, macs=10\.0\) is known by its size alone"):
        MODELS["size"](d=5, macs=10.0).build((1, 8, 8), 10)  # type: ignore[call-arg]
