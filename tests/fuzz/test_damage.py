"""A few of the random damages that `python -m tests.fuzz.damage` tries by the thousand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.fuzz.damage import tries
from tests.sizes import examples


@pytest.mark.ci
def test_damaged_folders_are_refused_or_read_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 damages of eight kinds of folders; see `tests.fuzz.damage` for the verdicts."""
    monkeypatch.chdir(tmp_path)
    outcomes = list(tries(tmp_path, examples(200), 7))
    assert not [what for _, verdict, what in outcomes if verdict.isupper()]
    assert Counter(verdict for _, verdict, _ in outcomes)["refused"] > len(outcomes) / 4
