"""The schema as a mutator sees it: what belongs at each place of a tree, and values that fit there."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from pydantic import BaseModel

from simfl.scenario.schema import Scenario
from simfl.scenario.shape import Shape, hints

Path = tuple[str | int, ...]

WHOLE = (0, 1, 1, 2, 2, 3, 4, 5, 8, 16, 50)
NUMBERS = (0.0, 0.001, 0.05, 0.1, 0.5, 0.9, 1.0, 1.0, 2.0, 5.0, 20.0, 100.0)
WORDS = ("x", "auto", "reference", "online.csv", "none", "missing.yaml")


def places(value: Any, annotation: Any = Scenario, path: Path = ()) -> Iterator[tuple[Path, Any, Any]]:
    """Each place of a tree as (path, value, annotation), None where the schema has none; the root first."""
    yield path, value, annotation
    shape = Shape(annotation)
    if isinstance(value, dict):
        for key, inner in value.items():
            model = chosen(shape, value)
            child = shape.child(key, model) if isinstance(key, str) else None
            if shape.open and isinstance(inner, dict | None) and shape.item is not None:
                inner = {"protocol": key, **(inner or {})}
            yield from places(inner, child, (*path, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from places(inner, shape.child(i, None), (*path, i))


def chosen(shape: Shape, value: dict[Any, Any]) -> type[BaseModel] | None:
    """The model that a mapping means, if that can be told."""
    tag = value.get(shape.tag) if shape.tag else None
    return shape.kinds.get(tag) if isinstance(tag, str) else shape.model


def missing(value: Any, annotation: Any) -> dict[str, Any]:
    """The keys that a mapping does not give, with their annotations."""
    model = chosen(Shape(annotation), value) if isinstance(value, dict) else None
    return {key: hint for key, hint in hints(model).items() if key not in value} if model else {}


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
        return {"fedavg": {}}
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
