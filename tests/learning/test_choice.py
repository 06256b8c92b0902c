"""The way of training is measured once and remembered; a broken cache is no cache."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from simfl.learning.cache import remembered as recall
from simfl.learning.choice import Choice, fastest


def remembered(key: str, decide: Callable[[], Choice]) -> Choice:
    return recall("training.json", Choice, key, decide)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIMFL_CACHE", str(tmp_path))
    return tmp_path / "training.json"


def sleeping(a_client_s: float, a_call_s: float):  # a way of training with known costs
    def trial(clients: int) -> None:
        if clients > 40:
            raise RuntimeError("out of memory")
        time.sleep(a_call_s + a_client_s * clients)

    return trial


def test_the_faster_way_wins_at_its_best_size() -> None:
    choice = fastest({"loop": sleeping(2e-3, 0), "vectorised": sleeping(1e-4, 2e-3)})
    assert (choice.way, choice.chunk) == ("vectorised", 32)  # 128 do not fit
    assert 5 < choice.speedup < 14
    assert "32 clients at a time" in str(choice)


def test_the_loop_stays_where_nothing_beats_it() -> None:
    assert fastest({"loop": sleeping(1e-3, 0), "vectorised": sleeping(1e-3, 1e-3)}) == Choice("loop", 1)
    assert fastest({"loop": sleeping(1e-3, 0)}) == Choice("loop", 1)


def test_a_choice_is_remembered_by_its_key(cache: Path) -> None:
    asked = []

    def decide() -> Choice:
        asked.append(1)
        return Choice("vectorised", 8, 2.5)

    assert remembered("a", decide) == remembered("a", decide) == Choice("vectorised", 8, 2.5)
    assert len(asked) == 1
    remembered("b", lambda: Choice("loop", 1))
    assert remembered("a", decide).chunk == 8
    assert len(asked) == 1
    assert set(json.loads(cache.read_text())) == {"a", "b"}


@pytest.mark.parametrize("broken", ["", "{", "[]", '{"a": {}}', '{"a": {"way": "loop"}}', '{"a": 3}'])
def test_a_broken_cache_is_none(cache: Path, broken: str) -> None:
    cache.write_text(broken)
    assert remembered("a", lambda: Choice("loop", 1)) == Choice("loop", 1)


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SIMFL_CACHE", str(tmp_path / "file" / "below"))
    assert remembered("a", lambda: Choice("loop", 1)) == Choice("loop", 1)
