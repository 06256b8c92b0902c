"""CPU seconds of a run that saves its finished rounds, against one that writes its files at the end.

    python benchmarks/saving.py

Real payload, modelled clock. The runs write the same files and take turns, so that a change of the machine's
speed hits all. `every round` saves after each round, which no user asks for.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import simfl
from simfl.learning.trainer import one_thread

ROOT = Path(__file__).parents[1]
TURNS = 3
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "tutorial.yaml": ("tutorial.yaml", {"rounds": 40}),
    "async_buffer.yaml": ("async_buffer.yaml", {"clock": "modelled", "protocols": ["lightsecagg_async"]}),
}


def seconds(work: Callable[[Path], object]) -> float:
    """CPU seconds of some work in a fresh folder."""
    with tempfile.TemporaryDirectory() as folder:
        before = time.process_time()
        work(Path(folder) / "run")
        return time.process_time() - before


def main() -> None:
    for name, (file, overrides) in RUNS.items():
        path = ROOT / "scenarios" / file
        ways: dict[str, Callable[[Path], object]] = {
            "at the end": lambda out, path=path, overrides=overrides: simfl.run(path, overrides).write(out),
            "every 2 s": lambda out, path=path, overrides=overrides: simfl.run(path, overrides, out=out),
            "every round": lambda out, path=path, overrides=overrides: simfl.run(
                path, overrides, out=out, save_every_s=0
            ),
        }
        with one_thread():
            took = {way: [seconds(work)] for way, work in ways.items()}  # the first turn warms up
            for _ in range(TURNS):
                for way, work in ways.items():
                    took[way].append(seconds(work))
        base = statistics.median(took["at the end"][1:])
        for way, listed in took.items():
            ratio = statistics.median(listed[1:]) / base
            print(f"{name:<20}{way:<12}{statistics.median(listed[1:]):8.2f} CPU s   x {ratio:.3f}")


if __name__ == "__main__":
    main()
