"""Calls that are noted: until others of their kernel are there (`Held`), or until one asks (`Deferred`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from simfl.dataplane.handles import Handle, HandleList
from simfl.errors import step_failed


class Batched(Protocol):
    """A kernel of which calls that wait together are better done together, `chunk` at a time; a call that
    diverged has the error as its result."""

    @property
    def chunk(self) -> int: ...
    def __call__(self, *args: Any) -> Any: ...
    def many(self, calls: Sequence[tuple[Any, ...]]) -> list[Any]: ...


class Deferred:
    """A call that was noted and is done only if its value is asked for."""

    __slots__ = ("args", "done", "kernel", "value", "where")

    def __init__(self, kernel: Callable[..., Any], args: tuple[Any, ...], where: tuple[Any, ...]) -> None:
        self.kernel = kernel
        self.args = args
        self.where = where
        self.done = False
        self.value: Any = None

    def finish(self, content: Callable[[Any], Any], call: Callable[..., Any]) -> None:
        """Do it; what it was made from can go."""
        try:
            self.value = call(self.kernel, tuple(map(content, self.args)))
        except Exception as error:
            raise step_failed(self.where, getattr(self.kernel, "__name__", ""), error) from error
        self.done, self.args = True, ()


def deferred(argument: Any) -> Iterator[Deferred]:
    """The deferred calls among arguments, in order."""
    if type(argument) is Handle:
        if type(argument.content) is Deferred:
            yield argument.content
    elif isinstance(argument, list | tuple | HandleList):
        for part in argument:
            yield from deferred(part)


def forgotten() -> Any:
    """Stand for what `replace` was given no content for."""
    raise ValueError("the content of a finished round is asked for, and the checkpoint does not hold it")


@dataclass(frozen=True, slots=True)
class Held:
    """A call that waits for others of its kernel."""

    kernel: Any
    args: tuple[Any, ...]
    where: tuple[Any, ...]


PENDING = {Held, Deferred}
"""Stand-ins in a handle for content that is still to be made."""


def batched(kernel: Any) -> bool:
    """Return True for a `Batched` kernel that gains by it."""
    return hasattr(kernel, "many") and kernel.chunk > 1


def grouped(items: Iterable[Any], kernel: Callable[[Any], Any]) -> list[list[Any]]:
    """Items by their batched kernel, in order, at most a chunk in each group."""
    groups: dict[int, list[Any]] = {}
    full: list[list[Any]] = []
    for item in items:
        group = groups.setdefault(id(kernel(item)), [])
        group.append(item)
        if len(group) >= kernel(item).chunk:
            full.append(groups.pop(id(kernel(item))))
    return [*full, *groups.values()]
