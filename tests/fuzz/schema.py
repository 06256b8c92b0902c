"""The schema as a mutator sees it: what belongs at each place of a tree, and values that fit there."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from pydantic import BaseModel

from simfl.scenario.schema import Scenario
from simfl.scenario.schema_shape import Shape, hints

Path = tuple[str | int, ...]

WHOLE = (0, 1, 1, 2, 2, 3, 4, 5, 8, 16, 50)
NUMBERS = (0.0, 0.001, 0.05, 0.1, 0.5, 0.9, 1.0, 1.0, 2.0, 5.0, 20.0, 100.0)
WORDS = ("x", "auto", "reference", "online.csv", "rates.csv", "link.up", "none", "missing.yaml")


class Place(NamedTuple):
    """A value in a tree; `annotation` is None where the schema has none, `model` where none can be told."""

    path: Path
    value: Any
    annotation: Any
    model: type[BaseModel] | None

    @property
    def missing(self) -> dict[str, Any]:
        """The keys that are not given, with their annotations."""
        given = self.value or {}
        if self.model is None or not isinstance(given, dict):
            return {}
        return {key: hint for key, hint in hints(self.model).items() if key not in given}


def places(value: Any, annotation: Any = Scenario, path: Path = (), implied: str = "") -> Iterator[Place]:
    """Each place of a tree, the root first. implied: the name of an entry, its protocol unless given."""
    shape = Shape(annotation)
    tag = value.get(shape.tag, implied) if isinstance(value, dict) and shape.tag else implied
    model = shape.kinds.get(tag) if isinstance(tag, str) and tag else shape.model
    yield Place(path, value, annotation, model)
    if isinstance(value, dict):
        for key, inner in value.items():
            child = shape.child(key, model) if isinstance(key, str) else None
            yield from places(inner, child, (*path, key), key if shape.open else "")
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from places(inner, shape.child(i, None), (*path, i))


def drawn(annotation: Any, rng: Random) -> Any:
    """A value that fits an annotation, or nearly."""
    shape = Shape(annotation)
    if shape.kinds:
        word = rng.choice(list(shape.kinds))
        return {shape.tag: word, **_block(shape.kinds[word], rng, skip=str(shape.tag))}
    if shape.words:
        return rng.choice(shape.words)
    if shape.model is not None:
        return _block(shape.model, rng)
    member = rng.choice(shape.members)
    if len(shape.members) > 1:
        return drawn(member, rng)
    if shape.open:
        named = {"fedavg": {}} if Shape(shape.item).tag else {}
        return named or {name: drawn(shape.item, rng) for name in ("home", "4g")[: rng.randint(1, 2)]}
    if shape.item is not None:
        return [drawn(shape.item, rng) for _ in range(rng.randint(0, 3))]
    pool: dict[Any, tuple[Any, ...]] = {int: WHOLE, float: NUMBERS, bool: (True, False), str: WORDS}
    return rng.choice(pool.get(member, WORDS))


def _block(model: type[BaseModel], rng: Random, skip: str = "") -> dict[str, Any]:
    """What it needs, and some of what it may have."""
    return {
        name: drawn(hints(model)[name], rng)
        for name, field in model.model_fields.items()
        if name != skip and (field.is_required() or rng.random() < 0.3)
    }
