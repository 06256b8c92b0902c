"""Staleness weights: by hand, and a stranger's beside ours."""

from __future__ import annotations

from pathlib import Path

import pytest

import simfl
from simfl.errors import ScenarioError
from simfl.protocols.staleness import Constant, Polynomial, Staleness
from simfl.scenario.load import load, resolved_yaml
from tests.engine.harness import ASYNC

HINGE = """
from pydantic import Field
from simfl.protocols.staleness import Staleness


class Hinge(Staleness):
    a: float = Field(10.0, gt=0)
    b: int = Field(4, ge=0)

    def __call__(self, tau: int) -> float:
        return 1.0 if tau <= self.b else 1 / (self.a * (tau - self.b) + 1)


class Half(Staleness):
    pass


class Negative(Staleness):
    def __call__(self, tau: int) -> float:
        return 1.0 - tau
"""


def test_constant_and_polynomial_by_hand() -> None:
    assert [Constant()(tau) for tau in (0, 1, 9)] == [1.0, 1.0, 1.0]
    assert [Polynomial()(tau) for tau in (0, 1, 3)] == [1.0, 0.5, 0.25]
    assert Polynomial(alpha=0.5)(3) == 0.5


def test_weights_outside_the_unit_interval_are_refused() -> None:
    class Linear(Staleness):
        def __call__(self, tau: int) -> float:
            return 1.0 - tau

    with pytest.raises(ValueError, match=r"s\(1\) = 0.0 must be above 0"):
        Linear().checked(1)


@pytest.fixture
def hinge(tmp_path: Path) -> str:
    file = tmp_path / "hinge.py"
    file.write_text(HINGE)
    return str(file)


def with_weight(spec: object, name: str = "fedbuff") -> dict[str, object]:
    return {**ASYNC, "payload": "shadow", "protocols": {name: {"staleness": spec}}}


def test_a_file_of_yours_weighs_updates(hinge: str, tmp_path: Path) -> None:
    scenario = load(with_weight({"module": f"{hinge}:Hinge", "a": 1.0, "b": 0}))
    kept = tmp_path / "resolved.yaml"
    kept.write_text(resolved_yaml(scenario))
    assert load(kept) == scenario
    result = simfl.run(scenario)
    assert {r["status"] for r in result.summary["protocols"]["fedbuff"]["rounds"]} == {"completed"}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"module": "Hinge", "a": -1.0}, "staleness.a: must be above 0, not -1.0"),
        ({"module": "Hinge", "bb": 1}, "staleness.bb: unknown key 'bb'; did you mean 'b'?"),
        ({"module": "Half"}, "is no complete staleness weight: it lacks __call__"),
        ({"module": "Field"}, "it must be a class derived from simfl.protocols.staleness.Staleness"),
        ({"module": "Nobody"}, "has no Nobody"),
    ],
)
def test_wrong_staleness_is_reported_at_its_place(hinge: str, spec: dict[str, object], message: str) -> None:
    with pytest.raises(ScenarioError) as problem:
        load(with_weight({**spec, "module": f"{hinge}:{spec['module']}"}))
    assert message in str(problem.value)
    assert "protocols.fedbuff.staleness" in str(problem.value)


def test_a_weight_that_falls_to_zero_is_refused_before_a_run(hinge: str) -> None:
    with pytest.raises(ScenarioError, match=r"staleness weight s\(4\) = -3.0 must be above 0"):
        load(with_weight({"module": f"{hinge}:Negative"}, "lightsecagg_async"))
