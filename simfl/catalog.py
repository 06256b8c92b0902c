"""What there is to choose from, by name: what `simfl list` prints."""

from __future__ import annotations

from importlib import import_module

KINDS = {
    "models": "learning.models.registry:MODELS",
    "datasets": "learning.data.registry:DATASETS",
    "selection": "selection.schemes:SELECTION",
    "availability": "population.availability:AVAILABILITY",
    "dropout": "population.dropout:DROPOUT",
    "partition": "learning.partition:PARTITION",
    "server": "learning.server_opt:SERVER",
    "clip": "learning.clipping:CLIP",
    "staleness": "protocols.staleness:STALENESS",
}
"""Things whose kinds are classes -> the registry of each."""


def listed(things: str) -> list[tuple[str, str]]:
    """Return (name, one line) of all protocols, profiles, or kinds of a thing. KeyError else."""
    if things in KINDS:
        module, _, name = KINDS[things].partition(":")
        found: list[tuple[str, str]] = getattr(import_module(f"simfl.{module}"), name).listed()
        return found
    return {"protocols": _protocols, "profiles": _profiles}[things]()


def _protocols() -> list[tuple[str, str]]:
    from simfl.protocols.registry import PROTOCOLS

    return [(name, (PROTOCOLS[name].__doc__ or "").partition("\n")[0]) for name in PROTOCOLS]


def _profiles() -> list[tuple[str, str]]:
    from simfl import profiles

    return [(name, profiles.load(name).description) for name in profiles.names()]
