"""simfl: federated learning with real secure aggregation, in virtual time.

    import simfl
    result = simfl.run("scenarios/sync_breakdown.yaml", overrides={"clock": "modelled"})
    result.summary["protocols"]["lightsecagg"]["mean"]["span_s"]

`await simfl.simulate(...)` does the same inside a coroutine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simfl.version import __version__ as __version__

if TYPE_CHECKING:
    from simfl.errors import ScenarioError as ScenarioError
    from simfl.reports.notebook import progress_bars as progress_bars
    from simfl.runs.folder.result import Result as Result
    from simfl.runs.simulation import run as run
    from simfl.runs.simulation import simulate as simulate
    from simfl.studies.proof.patterns import leaks as leaks
    from simfl.studies.proof.patterns import proof as proof

__all__ = ["Result", "ScenarioError", "leaks", "progress_bars", "proof", "run", "simulate"]

_HOMES = {
    "leaks": "simfl.studies.proof.patterns",
    "Result": "simfl.runs.folder.result",
    "ScenarioError": "simfl.errors",
    "progress_bars": "simfl.reports.notebook",
    "proof": "simfl.studies.proof.patterns",
    "run": "simfl.runs.simulation",
    "simulate": "simfl.runs.simulation",
}


def __getattr__(name: str) -> Any:
    """Import on first use: torch takes seconds, and `simfl --help` needs none of it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'simfl' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
