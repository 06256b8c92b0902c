"""Values set by dotted path: through shorthands, into lists, and from one kind to another."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from simfl.errors import cut, show
from simfl.scenario.messages import did_you_mean
from simfl.scenario.schema import Scenario
from simfl.scenario.schema_shape import Shape, expand
from simfl.scenario.yaml_tree import SET, Node, nodes


class Unfit(Exception):
    """An override that leads nowhere."""


def override(tree: Node, path: str, value: Any) -> None:
    """Set one value in the tree. Unknown keys are set too: validation reports them, with all others.

    Raises:
        Unfit: something on the way has no such entry, or no keys at all.
    """
    node, annotation = tree, Scenario
    *way, last = path.split(".")
    for depth, part in enumerate(way):
        key, annotation, shape = _step(node, annotation, part, ".".join(way[:depth]))
        child = node.child(key)
        if child is None:
            if shape.open:
                there = cut(", ".join(node.value))
                raise Unfit(f"no entry {show(part)}; there are: {there}{did_you_mean(part, node.value)}")
            child = node.value[key] = Node({}, SET)
        node = child
    key, annotation, shape = _step(node, annotation, last, ".".join(way))
    node.value[key] = expand(annotation, nodes(value, Node(None, SET)))
    _drop_stale(node, shape, last)


def _step(node: Node, annotation: Any, part: str, path: str) -> tuple[str | int, Any, Shape]:
    """The key that a part of a path means in a node, what the schema says of it, and the node's shape."""
    shape = Shape(annotation)
    key: str | int = part
    if isinstance(node.value, list):
        if not part.isdecimal() or int(part) >= len(node.value):
            raise Unfit(f"no entry {cut(part)}: the list has {len(node.value)}, numbered from 0")
        key = int(part)
    else:
        _enter(node, shape, part, path)
    return key, shape.child(key, shape.chosen(node)), shape


def _enter(node: Node, shape: Shape, key: str, path: str) -> None:
    """Make a node ready to take a key: a mapping, and of the first kind that is named for the key."""
    if node.value is None:
        node.value = {}
    if not isinstance(node.value, dict):
        raise Unfit(f"{cut(path)} is {show(node.value)}, which has no keys")
    model = shape.chosen(node)
    if shape.tag != "kind" or key == "kind" or (model and key in model.model_fields):
        return
    owners = [kind for kind, other in shape.kinds.items() if key in _main_keys(other)]
    if owners:
        node.value["kind"] = Node(owners[0], SET)
        _drop_stale(node, shape, "kind")


def _main_keys(model: type[BaseModel]) -> list[str]:
    """What a kind is named for: the values that it needs, or else its first one."""
    fields = {name: field for name, field in model.model_fields.items() if name != "kind"}
    return [name for name, field in fields.items() if field.is_required()] or list(fields)[:1]


def _drop_stale(node: Node, shape: Shape, key: str) -> None:
    """A new kind, or a new preset, takes the place of what belonged to the old one in the file."""
    model = shape.chosen(node)
    stale: set[str] = set()
    if key == shape.tag and model:
        stale = set(node.value) - set(model.model_fields)
    elif key == "preset" and node.value[key].value is not None:
        stale = {"uplink_mbps", "downlink_mbps"} & set(node.value)
    for name in stale:
        if node.value[name].file != SET:
            del node.value[name]
