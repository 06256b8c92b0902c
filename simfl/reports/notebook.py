"""Progress of a run in a notebook: a bar a protocol in the cell's output, which IPython updates in place.

The bars are HTML, since rich's own bars need widgets, which not every notebook has.
"""

import time
from collections.abc import Callable
from html import escape
from typing import Any

from simfl.reports.terminal import console
from simfl.runs.simulation import Progress

EVERY_S = 0.2
"""[s] Between two updates, as each is a message to the browser."""
CELL = '<td style="text-align:left;white-space:nowrap;padding:2px 8px">'


def progress_bars() -> Callable[[Progress], None]:
    """Return a `watch` that shows bars in a notebook, and nothing outside of one.

    >>> from simfl import run
    >>> run("scenarios/tutorial.yaml", {"rounds": 1, "payload": "shadow"}, watch=progress_bars())
    Result(tutorial, fedavg, secagg, lightsecagg)
    """
    # rich's own test: it looks for a kernel, and not for IPython, which a terminal may run too.
    return Bars() if console().is_jupyter else lambda at: None


class Bars:
    """The latest progress of each protocol."""

    def __init__(self) -> None:
        self._at: dict[str, Progress] = {}
        self._handle: Any = None
        self._due_s = 0.0

    def __call__(self, at: Progress) -> None:
        """Store a protocol's progress, and show it if that is due."""
        self._at[at.protocol] = at
        now = time.monotonic()
        # The last round is always shown (`test_updates_are_rare_and_the_last_is_shown`).
        if now < self._due_s and at.rounds_done < at.rounds:
            return
        self._due_s = now + EVERY_S
        if self._handle is None:
            # IPython is installed where a notebook runs, and no dependency of simfl's.
            from IPython.display import display

            self._handle = display(self, display_id=True)
        else:
            self._handle.update(self)

    def _lines(self) -> list[tuple[Progress, str]]:
        lines = []
        for at in self._at.values():
            accuracy = "" if at.accuracy is None else f", accuracy {at.accuracy:.3f}"
            counts = f"{at.rounds_done} of {at.rounds}, {at.virtual_s:.1f} s of virtual time"
            lines.append((at, counts + accuracy))
        return lines

    def __repr__(self) -> str:
        return "\n".join(f"{at.protocol}: {text}" for at, text in self._lines())

    def _repr_html_(self) -> str:
        rows = [
            f"<tr>{CELL}{escape(at.protocol)}</td>"
            f'{CELL}<progress value="{at.rounds_done}" max="{at.rounds}"></progress></td>'
            f"{CELL}{escape(text)}</td></tr>"
            for at, text in self._lines()
        ]
        return f"<table>{''.join(rows)}</table>"
