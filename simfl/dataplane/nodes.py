"""Symbolic operations: what a pool executes later, and how their arguments are walked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from simfl.dataplane.handles import Handle, HandleList


class Node:
    """One pending operation, kernel(*args); its value once it is `done`.

    size: the bytes of its value, as long as somebody holds its handle; waiting: for how many others, None as
    long as nobody wants it; small: its work is not worth a thread of its own.
    """

    __slots__ = ("args", "consumers", "done", "kernel", "size", "small", "value", "waiting", "where")

    def __init__(self, kernel: Callable[..., Any], args: tuple[Any, ...], where: tuple[Any, ...]) -> None:
        self.kernel: Callable[..., Any] = kernel
        self.args = args
        self.where = where
        self.size = 0
        self.small = False
        self.value: Any = None
        self.done = False
        self.waiting: int | None = None
        self.consumers: list[Node] = []

    @classmethod
    def of(cls, content: Any) -> Node:
        """A node that is done."""
        node = cls(_nothing, (), ())
        node.finish(content)
        return node

    def finish(self, content: Any) -> list[Node]:
        """Take the value; returns who waits for it. What it was made from can go."""
        consumers = self.consumers
        self.value, self.done = content, True
        self.kernel, self.args, self.consumers = _nothing, (), []
        return consumers


class Recipe:
    """An operation that each of its consumers does for itself: cheap to do, large to keep."""

    __slots__ = ("args", "kernel")

    def __init__(self, kernel: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.kernel = kernel
        self.args = args


def symbolic(argument: Any) -> Any:
    """An argument with its handles' nodes in their places."""
    if isinstance(argument, Handle):
        return argument.content
    if isinstance(argument, list | HandleList):
        return [symbolic(part) for part in argument]
    return argument


def is_there(argument: Any) -> bool:
    """Return True if an argument has its content already."""
    if isinstance(argument, Handle):
        return isinstance(argument.content, Node) and argument.content.done
    return not isinstance(argument, list | HandleList) or all(map(is_there, argument))


def value(argument: Any) -> Any:
    """An argument with the values of its nodes, which are done."""
    if isinstance(argument, Node):
        return argument.value
    if isinstance(argument, Recipe):
        return argument.kernel(*map(value, argument.args))
    if isinstance(argument, list):
        return [value(part) for part in argument]
    return argument


def nodes(argument: Any) -> Iterator[Node]:
    """The nodes in an argument, in order; those in recipes too."""
    if isinstance(argument, Node):
        yield argument
    elif isinstance(argument, Recipe):
        yield from nodes(argument.args)
    elif isinstance(argument, list | tuple):
        for part in argument:
            yield from nodes(part)


def recipes(argument: Any) -> Iterator[Recipe]:
    """The recipes in an argument."""
    if isinstance(argument, Recipe):
        yield argument
        yield from recipes(argument.args)
    elif isinstance(argument, list | tuple):
        for part in argument:
            yield from recipes(part)


def _nothing() -> None: ...
