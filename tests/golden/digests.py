"""Digests of a run: each entry's trace, and of its summary what no content enters."""

from __future__ import annotations

import json
from hashlib import sha256

from simfl.runs.folder.result import Result
from simfl.trace import rows

CONTENT = {"accuracy", "loss", "final_accuracy", "aggregate_exact", "updates_clipped", "wrapped", "clipped"}
"""Keys of the summary's rounds that depend on what was computed, and so on the machine."""


def digests(result: Result) -> dict[str, str]:
    """Return "trace summary" digests by entry."""
    return {name: f"{_of_trace(result, name)} {_of_summary(result, name)}" for name in result.traces}


def _of_trace(result: Result, name: str) -> str:
    lines = rows.lines({name: result.traces[name]})
    digest = sha256()
    for line in lines:
        digest.update(line.encode())
    return digest.hexdigest()[:32]


def _of_summary(result: Result, name: str) -> str:
    summary = {key: value for key, value in result.summary["protocols"][name].items() if key != "training"}
    text = json.dumps(_without_content(summary), sort_keys=True)
    return sha256(text.encode()).hexdigest()[:16]


def _without_content(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_content(inner) for key, inner in value.items() if key not in CONTENT}
    if isinstance(value, list):
        return [_without_content(inner) for inner in value]
    return round(value, 9) if isinstance(value, float) else value
