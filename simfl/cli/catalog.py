"""The names of everything that can be chosen, for `simfl list`."""

from importlib import import_module

KINDS = {
    "models": "learning.models.registry:MODELS",
    "protocols": "protocols.registry:PROTOCOLS",
    "losses": "learning.losses:LOSSES",
    "datasets": "learning.data:DATASETS",
    "selection": "world.selection:SELECTION",
    "availability": "world.availability:AVAILABILITY",
    "dropout": "world.dropout:DROPOUT",
    "links": "world.variations:LINKS",
    "batteries": "world.energy:BATTERIES",
    "partition": "learning.partition:PARTITION",
    "server": "learning.server_opt:SERVER",
    "clip": "learning.clipping:CLIP",
    "staleness": "protocols.staleness:STALENESS",
    "attacks": "privacy.attacks.registry:ATTACKS",
}
"""Things whose kinds are classes -> the registry of each."""


def listed(things: str) -> list[tuple[str, str]]:
    """Return (name, one line) of all scenarios, profiles, or kinds of a thing. KeyError for another word."""
    if things == "scenarios":
        from simfl.scenario import shipped

        return shipped.listed()
    if things == "profiles":
        from simfl.world import profiles

        return [(name, profiles.load(name).description) for name in profiles.names()]
    module, _, name = KINDS[things].partition(":")
    found: list[tuple[str, str]] = getattr(import_module(f"simfl.{module}"), name).listed()
    return found
