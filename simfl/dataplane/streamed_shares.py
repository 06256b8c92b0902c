"""Coded shares that are never held: made, sealed, opened and summed one sender after the other.

LightSecAgg's users handle coded shares row by row, until a receiver adds its rows up, so nothing needs all
N^2 of them. Once the sums are known that a sender's rows go into (the timeline runs ahead), its matrix is
coded in blocks of columns; each row of a block is really sealed by its sender, opened by its receiver, and
added to the receiver's sum. Sums modulo q do not depend on the order. A sum that is asked for after its
senders were through has their rows made again: right, and slow.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simfl.crypto import A32, field, keys, mds, row_routing
from simfl.dataplane.handles import Kernel
from simfl.dataplane.nodes import Node

BLOCK_COLUMNS = 1 << 16  # its part of a row fits the L2 cache, and Python's own work for a row is little

Call = Callable[[Kernel, tuple[Any, ...]], Any]
# Keys (a node of theirs), nonces and associated data, and which of them.
SealArgs = tuple[Any, Sequence[bytes], Sequence[bytes], int]


@dataclass(eq=False, slots=True)
class Share:
    """One coded share on its pipe: sealed and opened at most once, added to at most one sum at a time."""

    sender: "Sender"
    row: int
    sealing: SealArgs | None = None
    opening: SealArgs | None = None
    total: "Total | None" = None


class Sender:
    """One mask's coded shares.

    Attributes:
        args: Arguments of `mds.encode`.
        where: Step that coded the mask.
        shares: One per receiver.
        pending: Shares with work that has not begun, in order.
    """

    def __init__(self, args: tuple[Any, ...], where: tuple[Any, ...]) -> None:
        self.args, self.where = args, where
        self.shares = [Share(self, row) for row in range(len(args[2]))]
        self.pending: dict[Share, None] = {}


class Total(Node):
    """The sum of a receiver's shares: node of the work of all their senders."""

    __slots__ = ("array", "lock", "shares")

    def __init__(self, shares: list[Share], where: tuple[Any, ...]) -> None:
        super().__init__(self._take, ([],), where)
        self.shares = shares
        self.array: A32 | None = None
        self.lock = threading.Lock()

    def add(self, start: int, part: A32, m: int, q: int) -> None:
        """Add a block of columns from `start` on."""
        with self.lock:
            if self.array is None:
                self.array = np.zeros((1, m), np.uint32)
            field.add_to(self.array[0, start : start + part.size], part, q)

    def _take(self, senders: list[None]) -> A32 | None:
        array, self.array, self.shares = self.array, None, []
        return array


class ShareStreams:
    """Follows coded shares from operation to operation; `call` executes a kernel."""

    def __init__(self, call: Call) -> None:
        self._senders: dict[Sender, None] = {}
        self._call = call

    def shares(self, kernel: Kernel, args: tuple[Any, ...], where: tuple[Any, ...]) -> list[Share] | None:
        """Return an operation's resulting rows if they are coded shares, otherwise None."""
        if kernel is mds.encode:
            sender = Sender(args, where)
            self._touch(sender.shares)
            return sender.shares
        if kernel is row_routing.pick and are_shares(args[0]):
            return [args[0][i] for i in args[1]]
        if kernel is row_routing.gather and are_shares(args[0][0]):
            return [some[i] for some, i in zip(*args, strict=True)]
        if kernel is row_routing.join and are_shares(args[0][0]):
            return [share for some in args[0] for share in some]
        if kernel in (keys.seal, keys.open_) and are_shares(args[1]):
            shares: list[Share] = args[1]
            for k, share in enumerate(shares):
                seal_args = (args[0], args[2], args[3], k)
                setattr(share, "sealing" if kernel is keys.seal else "opening", seal_args)
            self._touch(shares)
            return shares
        return None

    def total(self, kernel: Kernel, args: tuple[Any, ...], where: tuple[Any, ...]) -> Node | None:
        """Return a sum of coded shares, if the operation is one. TypeError for any other use of them."""
        if not any(map(are_shares, args)):
            return None
        if kernel is not field.weighted_sum or args[1] is not None:
            raise TypeError(f"{kernel.__name__} of coded shares that are not held")
        out = Total(args[0], where)
        for share in out.shares:
            share.total = out
        self._touch(out.shares)
        return out

    def _touch(self, shares: Iterable[Share]) -> None:
        for share in shares:
            share.sender.pending[share] = None
            self._senders[share.sender] = None

    def prepare(self, node: Node) -> None:
        """Begin the work of a sum's senders, before the sum is made."""
        if isinstance(node, Total):
            for sender in dict.fromkeys(share.sender for share in node.shares):
                if sender in self._senders:
                    self._begin(sender)

    def rest(self) -> list[Node]:
        """Begin and return the work of all senders of whom something is left to do."""
        return [self._begin(sender) for sender in list(self._senders)]

    def _begin(self, sender: Sender) -> Node:
        kernel = StreamKernel(sender, self._call)
        secrets = [[args and args[0] for args in pair] for pair in kernel.seal_args]
        node = Node(kernel, (*sender.args[:2], secrets), sender.where)
        for total in dict.fromkeys(filter(None, kernel.totals)):
            total.args[0].append(node)
        for share in sender.pending:
            share.total = None
        sender.pending = {}
        del self._senders[sender]
        return node


class StreamKernel:
    """A kernel: all that is to be done to a sender's shares, as known now."""

    __name__ = "coded shares"

    def __init__(self, sender: Sender, call: Call) -> None:
        _, _, points, *self.code = sender.args
        self.points = [points[share.row] for share in sender.pending]
        self.seal_args = [(share.sealing, share.opening) for share in sender.pending]
        self.totals = [share.total for share in sender.pending]
        self.call = call

    def __call__(self, z: A32, seed: Any, secrets: list[list[Any]]) -> None:
        """Code the mask, carry its shares to their receivers, and add them to the receivers' sums.
        secrets: of each share the keys of the calls that sealed and opened it, None where there was none."""
        U, T, q = self.code
        m = mds.share_length(z.shape[1], U, T)
        pipes = []
        for (sealing, opening), (sealed_under, opened_under) in zip(self.seal_args, secrets, strict=True):
            seal_key = _seal_key(sealing, sealed_under)
            pipes.append(seal_key and keys.SealedPipe(seal_key, _seal_key(opening, opened_under)))
        rows = mds.uncoded(z, seed, U, T, q)
        for start in range(0, m, BLOCK_COLUMNS):
            block = self.call(mds.code, (rows[:, start : start + BLOCK_COLUMNS], self.points, U, q))
            for pipe, total, part in zip(pipes, self.totals, block, strict=True):
                got = part if pipe is None else pipe.carry(part.view(np.uint8)).view(np.uint32)
                if total is not None:
                    total.add(start, got, m, q)
        for pipe in pipes:
            if pipe is not None:
                pipe.close()


def _seal_key(args: SealArgs | None, secrets: Any) -> keys.SealKey | None:
    if args is None:
        return None
    _, nonces, aads, k = args
    return secrets[k].tobytes(), nonces[k], aads[k]


def are_shares(argument: Any) -> bool:
    """Return True if an argument is rows of coded shares."""
    return isinstance(argument, list) and bool(argument) and isinstance(argument[0], Share)
