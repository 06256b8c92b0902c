"""The contracts of machines: the calls of a driver (the loopback, the engine, a live run), and their times.

A driver uses a machine by its contract alone. `Client`, `BufferedClient`, `Server` and `BufferedServer` keep
the contracts by a table; a user-defined class may keep them in any other way. For each call of a machine:

- It returns effects, and acts by them alone. It does not wait, and it reads no clock, no socket and no
  content of a handle. It draws entropy only from the source that it was made with.
- Calls of one machine never overlap. The effects of a call are applied before the next call.
- No message of a peer makes it raise: it returns an `Ignore` or a `Refuse`. `ValueError` is for a mistake of
  the driver.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol, cast, runtime_checkable

from simfl.errors import RunFailed
from simfl.protocols.machine import Effects, Message, Timer, Update, place_of


@runtime_checkable
class ClientMachine(Protocol):
    """A user: in one synchronous round, or in a whole run over a buffer.

    With an offline phase, the machine reports its end: by `Ready()` in a round, by `Ready(update)` for the
    cycle of this update over a buffer. The user trains after that, or at the same time if the scenario has
    `overlap`. Without an offline phase it returns no `Ready`, and the user trains at once.

    >>> from simfl.dataplane.handles import F32, Handle
    >>> from simfl.dataplane.shadow import ShadowOps
    >>> from simfl.protocols.fedavg import FedAvgServer, PlainUpload
    >>> from simfl.protocols.loopback import run_round
    >>> from simfl.protocols.machine import SERVER, Ignore, Reason, Send
    >>> class Sender:
    ...     def receive(self, sender, message): return [Ignore(sender, message.kind, Reason.UNKNOWN)]
    ...     def submit(self, update): return [Send(SERVER, PlainUpload(update.delta, update.weight))]
    >>> server, update = FedAvgServer([7], d=2, ops=ShadowOps(101)), Update(Handle(1, 2, F32), weight=3)
    >>> run_round(server, {7: Sender()}, {7: update}, offline=False).result.members
    (Member(user=7, update=None, factor=1, staleness=0),)
    """

    def receive(self, sender: int, message: Message) -> Effects:
        """Take a message: called at any time, in the order of sending.

        A late, doubled or forged message changes nothing and is answered by `Ignore` or `Refuse`.
        """

    def submit(self, update: Update) -> Effects:
        """Take the local update: called once a round, or once a cycle over a buffer, after training.

        In a round it may come before `Ready`; the machine then holds the update until it can protect it.
        """


class _ServerMachine(Protocol):
    """The calls that both kinds of servers have."""

    def start(self) -> Effects:
        """Open the round or the run: called once, before everything else."""

    def receive(self, sender: int, message: Message) -> Effects:
        """Take a message: called in each user's order, also after the end. A second message of a kind from
        one user must not count twice."""

    def awaits(self, timer: Timer) -> bool:
        """Return True if a deadline still matters: called when it passes; changes nothing. A driver need not
        deliver a timer for which it is False, but may."""

    def expire(self, timer: Timer) -> Effects:
        """Continue without the users who did not answer: called when a timer of this machine is due."""

    def gone(self, user: int) -> Effects:
        """Note that a user's connection broke: called at any time, for any user, also repeatedly. With
        `detect: timeout` a driver never calls it, so deadlines alone must be enough."""


@runtime_checkable
class RoundServer(_ServerMachine, Protocol):
    """The server of one synchronous round: it ends with one `Result` or one `Abort`, and is then discarded.

    Attributes:
        quorum: By stage, the fraction of the expected users whose answers are enough after a second deadline;
            or a whole number of answers that are enough at once, after which the other users are `Surplus`.
            The driver sets it before `start`.

    >>> from simfl.dataplane.handles import F32, Handle
    >>> from simfl.dataplane.shadow import ShadowOps
    >>> from simfl.protocols.fedavg import FedAvgClient
    >>> from simfl.protocols.loopback import run_round
    >>> from simfl.protocols.machine import Abort, GiveUp
    >>> class Counter:
    ...     quorum = {}
    ...     def __init__(self, users):
    ...         self.missing = set(users)
    ...     def start(self): return [Timer("upload", "upload")]
    ...     def receive(self, sender, message):
    ...         self.missing.discard(sender)
    ...         return [] if self.missing else [Abort("all came, and were only counted")]
    ...     def awaits(self, timer): return bool(self.missing)
    ...     def expire(self, timer): return [GiveUp(tuple(self.missing), "upload"), Abort("too late")]
    ...     def gone(self, user): return []
    >>> clients = {user: FedAvgClient(user, ShadowOps(101), entropy=None) for user in range(3)}
    >>> updates = dict.fromkeys(clients, Update(Handle(1, 2, F32), weight=1))
    >>> lost = lambda user, message: "lose" if user == 1 else "deliver"
    >>> run_round(Counter(clients), clients, updates, offline=False, fate=lost).gave_up
    [GiveUp(users=(1,), phase='upload', update=None)]
    """

    quorum: Mapping[str, float]


@runtime_checkable
class BufferServer(_ServerMachine, Protocol):
    """The server of a buffer: it lives for a whole run; each `Result` or `Abort` ends one aggregation.

    Each update that begins leaves it exactly once: as a member of a `Result`, by a `GiveUp` or a `Discard`.

    >>> from simfl.dataplane.handles import F32, Handle
    >>> from simfl.dataplane.shadow import ShadowOps
    >>> from simfl.protocols.fedbuff import FedBuffClient
    >>> from simfl.protocols.loopback import LoopbackBuffer
    >>> from simfl.protocols.machine import Member, Params, Result, UpdateId
    >>> class OneByOne:
    ...     open, version = True, 0
    ...     def __init__(self):
    ...         self.flights = {}
    ...     def start(self): return []
    ...     def admits(self, user): return user not in self.flights
    ...     def begin(self, user, cycle):
    ...         self.flights[user] = UpdateId(user, cycle)
    ...         return []
    ...     def receive(self, sender, message):
    ...         member = Member(sender, self.flights.pop(sender))
    ...         self.version += 1
    ...         return [Result(message.vector, message.vector, (member,))]
    ...     def awaits(self, timer): return False
    ...     def expire(self, timer): return []
    ...     def gone(self, user): return []
    ...     def back(self, user): return []
    >>> def update(id, version):
    ...     return Update(Handle(1, 2, F32), 1, id, version)
    >>> clients = {3: FedBuffClient(3, Params(d=2, q=101), ShadowOps(101), entropy=None)}
    >>> run = LoopbackBuffer(OneByOne(), clients, update, offline=False)
    >>> for cycle in range(2):
    ...     run.begin(3); run.submit(3); run.settle()
    >>> [str(member.update) for result in run.results for member in result.members]
    ['3.0', '3.1']
    """

    @property
    def version(self) -> int:
        """Aggregates so far: read when a user downloads the model that it will train."""

    @property
    def flights(self) -> Collection[int]:
        """Users in a cycle whose update has neither arrived nor been given up: read after each call."""

    @property
    def open(self) -> bool:
        """True if cycles may begin: read before users are picked."""

    def admits(self, user: int) -> bool:
        """Return True if a user may begin a cycle: called for idle users; changes nothing."""

    def begin(self, user: int, cycle: int, behind: int = 0) -> Effects:
        """Begin a cycle of an admitted user.

        Args:
            user: Number of the user.
            cycle: Number of its cycle, from 0.
            behind: Versions by which its model is older than the current one.
        """

    def back(self, user: int) -> Effects:
        """Note that a user is connected again; the driver may have made no call of `gone` before."""


AnyServer = RoundServer | BufferServer


def round_server(machine: AnyServer) -> RoundServer:
    """Return the server of a round. RunFailed lists the members that it lacks of the contract."""
    if isinstance(machine, RoundServer):
        return machine
    raise _incomplete(machine, RoundServer)


def buffer_server(machine: AnyServer) -> BufferServer:
    """Return the server of a buffer. RunFailed lists the members that it lacks of the contract."""
    if isinstance(machine, BufferServer):
        return machine
    raise _incomplete(machine, BufferServer)


def _incomplete(machine: object, contract: type) -> RunFailed:
    return RunFailed(f"{type(machine).__name__} has no {', '.join(lacking(machine, contract))}")


def lacking(machine: object, contract: type) -> list[str]:
    """Return the members of a contract that a machine lacks, sorted.

    >>> lacking(object(), ClientMachine)
    ['receive', 'submit']
    """
    # Attributes without a value are annotations only, such as `quorum`.
    names = {
        name for base in contract.__mro__ for name in (*vars(base), *vars(base).get("__annotations__", ()))
    }
    return sorted(name for name in names if not name.startswith("_") and not hasattr(machine, name))


def client_machine(machine: object, kind: object) -> ClientMachine:
    """Return a user's machine as its protocol made it. RunFailed lists the members that it lacks."""
    if hasattr(machine, "receive") and hasattr(machine, "submit"):
        # `isinstance` with a typing.Protocol takes ten times as long, and there is a machine for each user.
        return cast(ClientMachine, machine)
    lacks = ", ".join(lacking(machine, ClientMachine))
    raise RunFailed(
        f"{type(kind).__name__}.client returned {'None' if machine is None else type(machine).__name__}, "
        f"which has no {lacks}: return a machine of simfl.protocols.contracts.ClientMachine"
    )


def check_table(machine: type, entries: Iterable[tuple[object, str]]) -> None:
    """Check the types of messages and the methods in a machine's table, when its class is defined.

    Raises:
        TypeError: One of them does not exist; the message has file, class and entry.
    """
    place = place_of(machine)
    for message, method in entries:
        # A kind as text would never match a message, so that the table's entry would be dead
        # (test_contracts.py: test_a_table_with_a_kind_as_text_fails_at_its_class).
        if not (isinstance(message, type) and issubclass(message, Message)):
            raise TypeError(f"{place}: its table has {message!r}, no type of messages")
        # Without these the first such message would fail in the middle of a run.
        if missing := [name for name in ("kind", "phase") if not hasattr(message, name)]:
            raise TypeError(
                f"{place}: its table has {message.__name__}, which has no {' and no '.join(missing)}"
            )
        # On the class and its bases: a method may be inherited.
        if not callable(getattr(machine, method, None)):
            raise TypeError(f"{place}: its table names {method!r}, no method of it")
