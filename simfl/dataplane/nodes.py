"""Deferred operations, the queues of a pool, and walks over their arguments.

Theory of operation. A node is an operation that has not been executed: its arguments are values, other nodes,
or lists of them. `finish` sets its value once, drops its arguments, and so frees each value that no other
node needs. A recipe is an operation without a stored value: each consumer executes it again. Nodes
compare by identity, so they may be keys of dictionaries.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from simfl.crypto import row_routing
from simfl.dataplane.handles import Handle, HandleList, Kernel


@dataclass(eq=False, slots=True)
class Node:
    """A deferred operation, kernel(*args), and its value once `done`.

    A pool alone uses `size`, `small` and `missing_inputs`.
    """

    kernel: Kernel
    """Function that computes the value."""
    args: tuple[Any, ...]
    """Its arguments; nodes and recipes stand for their values."""
    where: tuple[Any, ...]
    """Step that requested it, for error messages."""
    size: int = 0
    """Bytes of the value; 0 once its handle is dropped."""
    small: bool = False
    """Too little work for a separate thread."""
    value: Any = None
    """The result."""
    done: bool = False
    """True once the value is computed."""
    missing_inputs: int | None = None
    """Inputs not computed yet; None until it is scheduled."""
    consumers: list["Node"] = field(default_factory=list)
    """Scheduled nodes that need its value."""

    @property
    def routes(self) -> bool:
        """True for a kernel that only routes rows: it does no arithmetic, and is executed before all
        others."""
        # Keep in step with `MemoryProbeOps` (shadow.py), which executes the same three kernels.
        return self.kernel in (row_routing.pick, row_routing.gather, row_routing.join)

    @classmethod
    def of(cls, content: Any, where: tuple[Any, ...] = ()) -> "Node":
        """Return a node that is done; without content one that fails once its value is needed."""
        # The kernel of a node without content raises, so that the run ends by an error and not by a wrong
        # value.
        node = cls(_forgotten, (), where)
        if content is not None:
            node.finish(content)
        return node

    def finish(self, content: Any) -> list["Node"]:
        """Record the value, drop kernel and arguments, and return the nodes that wait for the value."""
        # The arguments hold other nodes' values, which are freed here unless others need them.
        consumers = self.consumers
        self.value, self.done = content, True
        self.kernel, self.args, self.consumers = _forgotten, (), []
        return consumers


@dataclass(eq=False, slots=True)
class Recipe:
    """An operation that each of its consumers executes again: quick to compute, large to keep."""

    kernel: Kernel
    """Function that computes the value."""
    args: tuple[Any, ...]
    """Its arguments; nodes and recipes stand for their values."""


Kind = TypeVar("Kind", Node, Recipe)


class Queues:
    """Nodes whose inputs are computed, in the order in which a pool executes them.

    First come the nodes that route rows, as they cost nothing and let their inputs be freed. Then nodes that
    follow a node that was just computed, the latest first. So a chain is finished, and its intermediate
    values are freed, before another chain begins. Then the others in the order of requests. Batchable nodes
    are last, so that as many as possible have arrived before a batch is taken.
    """

    def __init__(self) -> None:
        self._routes, self._following = list[Node](), list[Node]()
        self._ready, self._batchable = deque[Node](), deque[Node]()

    def __len__(self) -> int:
        return len(self._routes) + len(self._following) + len(self._ready) + len(self._batchable)

    def put(self, node: Node, follows: bool) -> None:
        """Add a node.

        Args:
            node: Ready to be executed.
            follows: It needs a value that was just computed, which is freed once the node is done too.
        """
        # First: a batched kernel waits for others even if it follows a value.
        if batched(node.kernel):
            self._batchable.append(node)
        elif node.routes:
            self._routes.append(node)
        else:
            (self._following if follows else self._ready).append(node)

    def take(self, workers: int) -> list[Node]:
        """Remove and return the next nodes that are executed together; empty if no node is ready.

        Args:
            workers: Threads of the pool, among which a batch is divided unless its nodes are small.
        """
        if self._routes or self._following:
            # The last one: a stack makes the order depth first.
            return [(self._routes or self._following).pop()]
        if self._ready:
            # The first one, in the order of requests.
            return [self._ready.popleft()]
        if not self._batchable:
            return []
        kernel: Any = self._batchable[0].kernel
        alike = [node for node in self._batchable if node.kernel is kernel]
        # Small nodes are not divided: a second thread would only wait for the interpreter's lock.
        parallel_units = 1 if alike[0].small else workers
        # Rounded up, so that all alike are taken by at most as many threads as there are.
        unit = alike[: min(kernel.chunk, -(-len(alike) // parallel_units))]
        for node in unit:
            self._batchable.remove(node)
        return unit


def symbolic(argument: Any) -> Any:
    """Return an argument with each handle replaced by its content."""
    if isinstance(argument, Handle):
        return argument.content
    if isinstance(argument, list | HandleList):
        return [symbolic(part) for part in argument]
    return argument


def value(argument: Any) -> Any:
    """Return an argument with each node, which must be done, replaced by its value."""
    if isinstance(argument, Node):
        return argument.value
    if isinstance(argument, Recipe):
        return argument.kernel(*map(value, argument.args))
    if isinstance(argument, list):
        return [value(part) for part in argument]
    return argument


def within(argument: Any, kind: type[Kind]) -> Iterator[Kind]:
    """Yield the nodes or the recipes in an argument in order, also within recipes."""
    # A recipe can be wanted itself, and hold wanted ones too: so both tests are made.
    if isinstance(argument, kind):
        yield argument
    if isinstance(argument, Recipe):
        argument = argument.args
    if isinstance(argument, list | tuple):
        for part in argument:
            yield from within(part, kind)


def batched(kernel: Any) -> bool:
    """Return True for a kernel that gains by executing calls together: `many(calls)`, `chunk` at a time."""
    return hasattr(kernel, "many") and kernel.chunk > 1


def _forgotten() -> Any:
    raise ValueError("the content of a finished round is needed, but the checkpoint does not hold it")
