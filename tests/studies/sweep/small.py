"""Small studies, how to run them here, and how to look at their folders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simfl.config.yaml_tree import dump
from simfl.studies.sweep.plan import make_plan
from simfl.studies.sweep.run import Sweep
from simfl.studies.sweep.store import Store
from tests.engine.harness import SIX, SYNC

BASE: dict[str, Any] = {
    **SYNC,
    "payload": "shadow",
    "population": {"users": 6, "devices": {"slowdown": {"kind": "uniform", "low": 8.0, "high": 16.0}}},
    "privacy": SIX["privacy"],
    "learning": {**SYNC["learning"], "dataset": {"kind": "synthetic", "train": 60, "test": 20}},
    "protocols": ["fedavg", "lightsecagg"],
}
"""Six users on devices of their own speed; nothing is executed, so a cell takes milliseconds."""

GRID: dict[str, Any] = {"dropout.rate": [0.0, 0.2]}


def study(folder: Path, **parts: Any) -> Path:
    """A study's file; `base`, `grid` and `seeds` unless given otherwise."""
    path = folder / "study.yaml"
    path.write_text(dump({"base": BASE, "grid": GRID, "seeds": 2, **parts}), encoding="utf-8")
    return path


def swept(file: Path, out: Path, traces: bool = False, **how: Any) -> Sweep:
    """A study run in this process, or as `how` says."""
    sweep = Sweep(make_plan(file), Store(out), traces)
    with sweep.store.locked():
        sweep.perform(sweep.missing(print), **how)
    return sweep


def files(out: Path) -> Mapping[str, bytes]:
    """All files of a sweep that are the same each time: by path, with their content."""
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name != "about.json"
    }
