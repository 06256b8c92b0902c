"""The table of docs/realism.md, "When queues matter", from the runs that it shows.

python -m docs.tools.queues     runs them, which takes a minute or two, and writes it

The world is that of docs/reality.md's crowded link: 20 users of 10 Mbit/s up and 40 down, 30 ms away, at a
server of 50 Mbit/s both ways; TCP, logistic regression of 60,850 parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import fmean
from typing import Any

import simfl
from benchmarks.live_grid import LOST, Cell, scenario
from docs.tools import ROOT
from simfl.trace.rows import SERVER, End, Sent
from simfl.virtual_time import NS

PAGE = ROOT / "docs" / "realism.md"
QUEUES_S = (0.0, 0.05, 0.25)
SEEDS = range(5)
CROWDED: dict[str, tuple[float, ...]] = {
    "fedavg": LOST,
    "secagg": LOST,
    "lightsecagg": LOST,
    "fedbuff": (0.1,),
    "lightsecagg_async": (0.1,),
}
"""Protocols, and the shares of users that are lost before their upload: of three rounds, or of a run."""
CHURN: dict[str, Any] = {
    "population.availability": {
        "kind": "sessions",
        "on_s": {"exponential": 10.0},
        "off_s": {"exponential": 1.0},
    },
    "dropout.rate": 0.0,
}
"""Users that go offline at any time, also amid a message."""


def measured(cell: Cell, changes: dict[str, Any]) -> tuple[float, float]:
    """Return the mean seconds of a cell's run, and of its users' messages that never arrive."""
    seconds, dropped = [], []
    for seed in SEEDS:
        trace = simfl.run(scenario(cell, **changes), {"payload": "shadow", "seed": seed}).traces[
            cell.protocol
        ]
        seconds.append(max(row.at for row in trace if isinstance(row, End)) / NS)
        dropped.append(
            sum(row.arrived is None and row.sender != SERVER for row in trace if isinstance(row, Sent))
        )
    return fmean(seconds), fmean(dropped)


def lines() -> Iterator[tuple[str, ...]]:
    """Yield the table's lines."""
    yield "protocol", "losses", *(f"queue of {queue_s:g} s" for queue_s in QUEUES_S)
    for name, lost in CROWDED.items():
        words = "0, 10, 30 %" if len(lost) > 1 else "10 %"
        yield name, f"{words} before upload", *cells(Cell(name, "wire", "10/40", lost), {})
    for name in ("fedavg", "lightsecagg_async"):
        lost = CROWDED[name]
        yield name, "offline at any time", *cells(Cell(name, "wire", "10/40", lost), CHURN)


def cells(cell: Cell, changes: dict[str, Any]) -> Iterator[str]:
    """Yield seconds and dropped messages with each queue."""
    for queue_s in QUEUES_S:
        seconds, dropped = measured(cell._replace(queue_s=queue_s), changes)
        yield f"{seconds:.2f} s, {dropped:.1f}"


def main() -> None:
    """Write the table."""
    head, *rest = lines()
    table = "\n".join(f"| {' | '.join(line)} |" for line in (head, ("---",) * len(head), *rest))
    text = PAGE.read_text(encoding="utf-8")
    pattern = r"(<!-- python -m docs\.tools\.queues writes this table -->\n).*?(<!-- end -->)"
    PAGE.write_text(re.sub(pattern, lambda m: f"{m[1]}{table}\n{m[2]}", text, flags=re.S), encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
