"""The golden trace of one small round, in full: the first to show a change of the engine or of a protocol."""

from __future__ import annotations

from tests.golden.update import HERE, small_round


def test_small_round_is_what_it_was() -> None:
    """If the change is meant: python -m tests.golden.update."""
    assert small_round() == (HERE / "small_round.jsonl").read_text(encoding="utf-8")
