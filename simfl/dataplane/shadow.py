"""Operations of which only lengths and counts are known: the same timeline without the work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simfl.dataplane.handles import Handle
from simfl.dataplane.ops import Ops


class ShadowOps(Ops):
    """Knows lengths and counts only. Without content, all handles of a shape are one."""

    executes = False
    steps_at_once = 100

    def __init__(self, q: int) -> None:
        super().__init__(q)
        self._handles: dict[tuple[int, int, int], Handle] = {}

    def _run(self, kernel: Callable[..., Any], shape: tuple[int, int, int], args: tuple[Any, ...]) -> Handle:
        handle = self._handles.get(shape)
        if handle is None:
            handle = self._handles[shape] = Handle(*shape)
        return handle
