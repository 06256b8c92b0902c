"""The pools of the runs of a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simfl.dataplane.pooled import PooledOps


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[PooledOps]]:
    """The pools of the runs of a test, as they were when they were closed."""
    seen: list[PooledOps] = []
    close = PooledOps.close

    def closing(self: PooledOps) -> None:
        seen.append(self)
        close(self)

    monkeypatch.setattr(PooledOps, "close", closing)
    return seen
