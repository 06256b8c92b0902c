"""Attacks of the papers on scenarios of ours: run, recorded and attacked in a folder that is then removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from simfl.privacy.attacks.attack import Finding
from simfl.scenario.load import load
from simfl.studies import recorded

BUNDLED = "the bundled digits"


def findings(
    kind: str,
    scenario: Path,
    changes: Mapping[str, Any],
    seed: int,
    settings: Mapping[str, Any] | None = None,
) -> tuple[Finding, ...]:
    """Run a scenario with changes by dotted key, attack it with settings, and return what was found."""
    s = load(scenario, {**changes, "record_updates": True})
    with TemporaryDirectory() as folder:
        made = recorded.made(kind, settings or {})
        return recorded.perform(made, Path(folder), s, seed, True, lambda stage: None).findings


def of(found: Sequence[Finding], entry: str, attacked: str) -> Mapping[str, float]:
    """Return the numbers of an entry and of what was attacked there."""
    return next(f.numbers for f in found if (f.entry, f.attacked) == (entry, attacked))
