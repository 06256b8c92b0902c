"""The rows of a trace: they name their causes, cannot be changed, and hold no content."""

from __future__ import annotations

import json

import pytest

from simfl.trace import rows
from simfl.trace.codes import Discarded
from simfl.trace.rows import ROWS
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


@pytest.mark.parametrize(
    ("party", "message", "why", "expected"),
    [
        (rows.SERVER, "update", "stale: beyond 2", Discarded.STALE),
        (rows.SERVER, "update", "its recovery was aborted", Discarded.ABORTED),
        (rows.SERVER, "timer", "stale", None),
        (rows.SERVER, "update", "stale mate", None),
        (3, "update", "stale: beyond 2", None),
    ],
)
def test_only_a_buffers_server_discards(
    party: int, message: str, why: str, expected: Discarded | None
) -> None:
    assert rows.Ignored(0, party, 1, message, "1.0", why, 0, 0).discarded is expected
