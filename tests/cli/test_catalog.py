"""What `simfl list` prints, against the registries."""

from __future__ import annotations

from simfl.cli.catalog import listed
from simfl.learning.data import DATASETS
from simfl.learning.models import MODELS
from simfl.protocols.registry import PROTOCOLS


def test_everything_is_listed_by_its_name() -> None:
    for things, known in (("protocols", PROTOCOLS), ("models", MODELS), ("datasets", DATASETS)):
        assert [name for name, _ in listed(things)] == list(known)
    assert "62 classes: 1,206,590 parameters" in dict(listed("models"))["femnist_cnn"]
    assert "reference" in dict(listed("profiles"))
