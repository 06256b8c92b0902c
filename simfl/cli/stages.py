"""Stages of a command on stderr, where they take long: nobody waits without knowing for what."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

PATIENCE_S = 2.0
"""Off a terminal a stage is told once it has taken so long."""


@contextmanager
def doing(patience_s: float | None = None) -> Iterator[Callable[[str], None]]:
    """A function to call with each stage as it begins. On a terminal one line shows it, and goes at the end;
    elsewhere a stage that lasts has a line of its own."""
    if sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("") as status:
            yield lambda stage: status.update(f"{stage} ...")
        return
    waiting: list[Timer] = []

    def tell(stage: str) -> None:
        stop()
        line = f"simfl: {stage} ..."
        waiting.append(
            Timer(
                PATIENCE_S if patience_s is None else patience_s,
                lambda: print(line, file=sys.stderr, flush=True),
            )
        )
        waiting[0].daemon = True
        waiting[0].start()

    def stop() -> None:
        while waiting:
            waiting.pop().cancel()

    try:
        yield tell
    finally:
        stop()
