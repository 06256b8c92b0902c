"""The rows of a trace: they name their causes, cannot be changed, and hold no content."""

from __future__ import annotations

import json

import pytest

from simfl.trace import ROWS
from tests.engine.harness import edges, lines


def test_a_cause_is_an_earlier_row() -> None:
    for trace in edges().traces.values():
        for number, row in enumerate(trace):
            assert -1 <= getattr(row, "cause", -1) < number


def test_rows_hold_numbers_and_short_names_only() -> None:
    """No key, mask or update can be in a trace."""

    def leaves(value: object) -> list[object]:
        return [leaf for v in value for leaf in leaves(v)] if isinstance(value, list) else [value]

    for line in lines(edges()):
        for key, value in json.loads(line).items():
            assert len(leaves(value)) <= 3 * 10, key
            for leaf in leaves(value):
                assert leaf is None or isinstance(leaf, int) or len(str(leaf)) < 80


def test_rows_cannot_be_changed() -> None:
    for kind in ROWS.values():
        assert issubclass(kind, tuple)
        row = kind._make(range(len(kind._fields)))
        for name in (*kind._fields, "more"):
            with pytest.raises(AttributeError):
                setattr(row, name, 1)
