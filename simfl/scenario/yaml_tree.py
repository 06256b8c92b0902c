"""A value that knows where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SET = "--set"
"""Where a value stands that came from an override."""

Keys = tuple[str | int, ...]


@dataclass(slots=True)
class Node:
    """A value and where it stands: a dict of nodes, a list of nodes, or a plain scalar."""

    value: Any
    file: str
    line: int | None = None

    def child(self, key: str | int) -> Node | None:
        if isinstance(self.value, dict):
            return self.value.get(key)
        if isinstance(self.value, list) and isinstance(key, int) and key < len(self.value):
            child: Node = self.value[key]
            return child
        return None


def nodes(value: Any, like: Node) -> Node:
    """Nest plain values as nodes, standing where `like`, or its child of the same key, does."""
    if isinstance(value, Node):
        return value
    if isinstance(value, Mapping):
        value = {key: nodes(inner, like.child(key) or like) for key, inner in value.items()}
    elif isinstance(value, list | tuple):
        value = [nodes(inner, like) for inner in value]
    return Node(value, like.file, like.line)


def plain(node: Node) -> Any:
    """The value that `nodes` was given."""
    if isinstance(node.value, dict):
        return {key: plain(child) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return [plain(child) for child in node.value]
    return node.value
