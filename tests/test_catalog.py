"""What `simfl list` prints, against the registries."""

from __future__ import annotations

import pytest

from simfl.catalog import listed
from simfl.crypto.product import BACKENDS
from simfl.learning.data import DATASETS
from simfl.learning.models import MODELS
from simfl.protocols.registry import PROTOCOLS
from tests.engine.harness import SIX, lines, run


def test_everything_is_listed_by_its_name() -> None:
    for things, known in (("protocols", PROTOCOLS), ("models", MODELS), ("datasets", DATASETS)):
        assert [name for name, _ in listed(things)] == list(known)
    assert "62 classes: 1,206,590 parameters" in dict(listed("models"))["femnist_cnn"]
    assert "reference" in dict(listed("profiles"))


def test_backends_say_which_is_chosen() -> None:
    shown = dict(listed("backends"))
    assert list(shown) == [*BACKENDS, "ntt"]
    assert sum("chosen" in text for text in shown.values()) == 1
    assert "reference" in shown["galois"]


@pytest.mark.parametrize("backend", ["limbs", "digits"])
def test_a_scenarios_backend_changes_nothing_but_speed(backend: str) -> None:
    if not BACKENDS[backend].available():
        pytest.skip("no exact int8 product on this processor")
    overrides = {**SIX, "protocols": ["lightsecagg"], "learning.model": "cnn"}
    result = run({**overrides, "field.backend": backend})
    assert lines(result) == lines(run(overrides))
    assert all(m.exact for m in result.measured["lightsecagg"])
