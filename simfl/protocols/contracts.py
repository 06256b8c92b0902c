"""The contracts of machines: what a driver (the loopback, the engine) calls, when, and what must not happen.

A driver knows a machine by its contract alone. `Client`, `BufferedClient`, `Server` and `BufferedServer` keep
them by a table; a class of your own may do so in any other way. For every call of every machine:

- it returns effects, and nothing happens but by them: it neither waits nor looks at a clock, a socket or the
  content of a handle, and draws entropy only from the source that it was made with;
- calls of one machine never overlap, and each call's effects are carried out before the next one's;
- what a peer sent never makes it raise: that is an `Ignore` or a `Refuse`. `ValueError` is for what a driver
  must not do.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol, cast, runtime_checkable

from simfl.errors import RunFailed
from simfl.protocols.machine import Effects, Message, Timer, Update, place_of


@runtime_checkable
class ClientMachine(Protocol):
    """A user: in one synchronous round, or in a whole run over a buffer.

    Where there is an offline phase, the machine says that it is done: `Ready()` in a round, `Ready(update)`
    for the cycle of this update over a buffer. The user trains from then on, or beside the offline phase if
    the scenario lets it. Without an offline phase it never says so, and the user trains at once.

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
        """Take a message: called for each that arrives, in the order in which they were sent, at any time. It
        may be late, doubled or forged, and then changes nothing: it is answered by `Ignore` or `Refuse`."""

    def submit(self, update: Update) -> Effects:
        """Take the local update: called once a round, or once a cycle over a buffer, when training is over.
        In a round this may be before `Ready`: it is then held. It is sent only under its protection."""


class _ServerMachine(Protocol):
    def start(self) -> Effects:
        """Open the round or the run: called once, before everything else."""

    def receive(self, sender: int, message: Message) -> Effects:
        """Take a message: called for each that arrives, in each user's order, also when all is over. A user's
        second message of a kind must not count twice."""

    def awaits(self, timer: Timer) -> bool:
        """Return False if a deadline means nothing any more: asked when it passes, and changes nothing. A
        driver need not deliver such a timer, but may."""

    def expire(self, timer: Timer) -> Effects:
        """Go on without those who did not answer: called when one of its timers is due."""

    def gone(self, user: int) -> Effects:
        """Hear that a user's connection broke: at any time, of anyone, more than once. A driver may never say
        so (`detect: timeout`): deadlines alone must be enough."""


@runtime_checkable
class RoundServer(_ServerMachine, Protocol):
    """The server of one synchronous round: it ends with one `Result` or one `Abort`, and is then thrown away.

    `quorum` maps a stage to the fraction of those waited for whose answers are enough after a second
    deadline, or to a whole number of answers that are enough at once: it says who is then `Surplus`. The
    driver sets it before `start`.

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

    An update that was begun leaves it as a member of a `Result`, by a `GiveUp` or by a `Discard`, once.

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
        """The number of aggregates so far: read when a user downloads the model that it will train."""

    @property
    def flights(self) -> Collection[int]:
        """The users that began and whose update neither came nor was given up: read after each call."""

    @property
    def open(self) -> bool:
        """False while no cycle may begin: read before users are picked."""

    def admits(self, user: int) -> bool:
        """Return True if a user may begin a cycle: asked of idle users, and changes nothing."""

    def begin(self, user: int, cycle: int, behind: int = 0) -> Effects:
        """Begin a cycle of a user that is admitted and gets the present version: numbered from 0 on."""

    def back(self, user: int) -> Effects:
        """Hear that a user is connected again; of its going the driver may have said nothing."""


AnyServer = RoundServer | BufferServer


def round_server(machine: AnyServer) -> RoundServer:
    """Return the server of a round. RunFailed, with what it lacks, if it does not keep the contract."""
    if isinstance(machine, RoundServer):
        return machine
    raise _incomplete(machine, RoundServer)


def buffer_server(machine: AnyServer) -> BufferServer:
    if isinstance(machine, BufferServer):
        return machine
    raise _incomplete(machine, BufferServer)


def _incomplete(machine: object, contract: type) -> RunFailed:
    return RunFailed(f"{type(machine).__name__} has no {', '.join(lacking(machine, contract))}")


def lacking(machine: object, contract: type) -> list[str]:
    """Return the names of a contract that a machine does not have.

    >>> lacking(object(), ClientMachine)
    ['receive', 'submit']
    """
    asked = {
        name for base in contract.__mro__ for name in (*vars(base), *vars(base).get("__annotations__", ()))
    }
    return sorted(name for name in asked if not name.startswith("_") and not hasattr(machine, name))


def client_machine(machine: object, kind: object) -> ClientMachine:
    """Return a user's machine as its protocol made it. RunFailed, with what it lacks, if it is none."""
    if hasattr(machine, "receive") and hasattr(machine, "submit"):
        return cast(ClientMachine, machine)  # `isinstance` of a protocol takes ten times as long
    lacks = ", ".join(lacking(machine, ClientMachine))
    raise RunFailed(
        f"{type(kind).__name__}.client returned {'None' if machine is None else type(machine).__name__}, "
        f"which has no {lacks}: return a machine of simfl.protocols.contracts.ClientMachine"
    )


def check_table(machine: type, entries: Iterable[tuple[object, str]]) -> None:
    """Check the types of messages and the methods that a machine's table names, when its class is defined.
    TypeError names the file, the class and the entry."""
    place = place_of(machine)
    for message, method in entries:
        if not (isinstance(message, type) and issubclass(message, Message)):
            raise TypeError(f"{place}: its table has {message!r}, no type of messages")
        if missing := [name for name in ("kind", "phase") if not hasattr(message, name)]:
            raise TypeError(
                f"{place}: its table has {message.__name__}, which has no {' and no '.join(missing)}"
            )
        if not callable(getattr(machine, method, None)):
            raise TypeError(f"{place}: its table names {method!r}, no method of it")
