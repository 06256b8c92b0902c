"""What there is to choose from, by name: what `simfl list` prints."""

from __future__ import annotations


def listed(things: str) -> list[tuple[str, str]]:
    """(name, one line) of all protocols, models, datasets, profiles or backends. KeyError for others."""
    lists = {
        "protocols": _protocols,
        "models": _models,
        "datasets": _datasets,
        "profiles": _profiles,
        "backends": _backends,
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

    return [(name, dataset.summary) for name, dataset in DATASETS.items()]


def _backends() -> list[tuple[str, str]]:
    from simfl.crypto import product
    from simfl.learning.threads import one_thread

    with one_thread():
        return product.describe()


def _profiles() -> list[tuple[str, str]]:
    from simfl import profiles

    return [(name, profiles.load(name).description) for name in profiles.names()]
