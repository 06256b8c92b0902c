"""What there is to choose from, by name: what `simfl list` prints."""

from __future__ import annotations


def listed(things: str) -> list[tuple[str, str]]:
    """(name, one line) of all protocols, models, datasets or profiles. KeyError for others."""
    lists = {
        "protocols": _protocols,
        "models": _models,
        "datasets": _datasets,
        "profiles": _profiles,
    }
    return lists[things]()


def _protocols() -> list[tuple[str, str]]:
    from simfl.protocols.registry import PROTOCOLS

    return [(name, f"{kind.summary} ({kind.source})") for name, kind in PROTOCOLS.items()]


def _models() -> list[tuple[str, str]]:
    from simfl.learning.models import MODELS

    return [(name, model.describe()) for name, model in MODELS.items()]


def _datasets() -> list[tuple[str, str]]:
    from simfl.learning.data import DATASETS

    return [(name, DATASETS[name].summary()) for name in DATASETS]


def _profiles() -> list[tuple[str, str]]:
    from simfl import profiles

    return [(name, profiles.load(name).description) for name in profiles.names()]
