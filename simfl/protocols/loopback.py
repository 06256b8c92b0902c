"""The driver without time, for trying machines by hand, for tests and to touch every kernel once.

`run_round` drives a synchronous round: messages in order of sending; when none is left, the oldest timer
fires; a `Fate` says what becomes of a user's messages. `LoopbackBuffer` holds a buffered run, in which
whoever drives it picks what happens next.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from simfl.protocols.machine import (
    SERVER,
    Abort,
    Discard,
    Effect,
    Effects,
    GiveUp,
    Ignore,
    Message,
    Ready,
    Refuse,
    Result,
    Send,
    Timer,
    Update,
    UpdateId,
    Verdict,
)

Fate = Callable[[int, Any], str]
"""(user, message) -> "deliver"; "late" (after the next deadline that the server really waits for); "lose"
(and the user with it); "break" (the same, and the server is told); or "leave" (delivered, then the user is
lost and the server told)."""

GONE = None
"""In place of a message: the transport reports that the sender's connection broke."""


@dataclass
class LoopbackRound:
    """The end of a round, and what its parties sent, gave up, ignored and refused."""

    result: Result | None = None
    reason: str | None = None
    gave_up: list[GiveUp] = field(default_factory=list)
    ignored: list[tuple[int, Ignore]] = field(default_factory=list)
    refused: list[tuple[int, Refuse]] = field(default_factory=list)
    sent: list[tuple[int, int, Any]] = field(default_factory=list)
    verdict: Verdict | None = None

    def keep(self, party: int, effect: Effect) -> None:
        """Write down an effect of a party, where it is neither a message nor a timer."""
        match effect:
            case Result():
                self.result = effect
            case Abort(reason):
                self.reason = reason
            case GiveUp():
                self.gave_up.append(effect)
            case Ignore():
                self.ignored.append((party, effect))
            case Refuse():
                self.refused.append((party, effect))
            case Verdict():
                self.verdict = effect


def run_round(
    server: Any,
    clients: Mapping[int, Any],
    updates: Mapping[int, Update],
    fate: Fate = lambda user, message: "deliver",
    early: bool = False,
) -> LoopbackRound:
    """Drive one synchronous round to its result or its abort, and then empty the wires.

    Args:
        early: whether updates are submitted before the offline phase instead of at `Ready`.
    """
    out = LoopbackRound()
    wires: deque[tuple[int, int, Any]] = deque()
    late: deque[tuple[int, int, Any]] = deque()
    timers: deque[Timer] = deque()
    lost: set[int] = set()

    def carry_out(party: int, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Send(to, message) if party not in lost:
                    verdict = "deliver" if party == SERVER else fate(party, message)
                    if verdict in ("lose", "break", "leave"):
                        lost.add(party)
                    if verdict not in ("lose", "break"):
                        out.sent.append((party, to, message))
                        (late if verdict == "late" else wires).append((party, to, message))
                    if verdict in ("break", "leave"):
                        wires.append((party, SERVER, GONE))
                case Timer():
                    timers.append(effect)
                case Ready() if not early:
                    carry_out(party, clients[party].submit(updates[party]))
                case _:
                    out.keep(party, effect)

    carry_out(SERVER, server.start())
    for user, client in clients.items():
        if early or getattr(client, "state", None) == "ready":
            carry_out(user, client.submit(updates[user]))
    while wires or late or timers:
        if wires:
            sender, to, message = wires.popleft()
            if message is GONE:
                carry_out(SERVER, server.gone(sender))
            elif to not in lost:
                machine = server if to == SERVER else clients[to]
                carry_out(to, machine.receive(sender, message))
        elif timers:
            timer = timers.popleft()
            overdue = server.awaits(timer)
            carry_out(SERVER, server.expire(timer))
            if overdue:
                wires.extend(late)
                late.clear()
        else:
            wires.extend(late)
            late.clear()
    return out


class LoopbackBuffer:
    """A buffered run without time: what can happen next, and what has come of it.

    Messages keep their order on each directed link. A user that leaves loses what it was training and sending
    (but it enrols when it is back); what is sent to it waits. The server is told, or finds out by its timers.

    Args:
        server, clients: the machines of all users.
        make_update: an update with this identity, made on this version.
        offline: True if a client says `Ready` when its user may train; otherwise that is at once.
        away: users that are not there from the start.
    """

    def __init__(
        self,
        server: Any,
        clients: Mapping[int, Any],
        make_update: Callable[[UpdateId, int], Update],
        offline: bool,
        away: tuple[int, ...] = (),
    ) -> None:
        self.server, self.clients = server, clients
        self.make_update, self.offline = make_update, offline
        self.away, self.disconnected = set(away), set[int]()
        self.links: dict[tuple[int, int], list[Message]] = {}
        self.timers: list[Timer] = []
        self.trained: dict[int, UpdateId] = {}
        self.cycles: Counter[int] = Counter()
        self.versions: dict[UpdateId, int] = {}
        self.results: list[Result] = []
        self.aborts: list[str] = []
        self.given_up: list[UpdateId | None] = []
        self.ignored: list[tuple[int, Ignore]] = []
        self.discarded: list[Discard] = []
        self.refused: list[tuple[int, Refuse]] = []
        self.carry_out(SERVER, server.start())

    @property
    def version(self) -> int:
        """The version of the global model, as counted here."""
        return len(self.results)

    def carry_out(self, party: int, effects: Effects) -> None:
        """Do what a machine asks for."""
        for effect in effects:
            match effect:
                case Send(to, message):
                    self.links.setdefault((party, to), []).append(message)
                case Timer():
                    self.timers.append(effect)
                case Ready(update) if update is not None:
                    self.trained[update.user] = update
                case Result():
                    self.results.append(effect)
                case Abort(reason):
                    self.aborts.append(reason)
                case GiveUp(_, _, update):
                    self.given_up.append(update)
                case Ignore():
                    self.ignored.append((party, effect))
                case Discard():
                    self.discarded.append(effect)
                case Refuse():
                    self.refused.append((party, effect))

    def admitted(self) -> list[int]:
        """Return the users that may begin a cycle now."""
        users = (user for user in self.clients if user not in self.away and user not in self.trained)
        return [user for user in users if self.server.admits(user)] if self.server.open else []

    def begin(self, user: int) -> None:
        """Let a user begin its next cycle."""
        update = UpdateId(user, self.cycles[user])
        self.versions[update] = self.version
        self.carry_out(SERVER, self.server.begin(*update))
        self.cycles[user] += 1
        if not self.offline:
            self.trained[user] = update

    def submit(self, user: int) -> None:
        """Hand a trained user's update to its machine."""
        update = self.trained.pop(user)
        made = self.make_update(update, self.versions[update])
        self.carry_out(user, self.clients[user].submit(made))

    def deliverable(self) -> list[tuple[int, int]]:
        """Return the links (sender, receiver) on which a message waits and both are there."""
        return [link for link, queue in self.links.items() if queue and not self.away & set(link)]

    def deliver(self, sender: int, to: int) -> None:
        """Deliver the oldest message of a link."""
        message = self.links[sender, to].pop(0)
        machine = self.server if to == SERVER else self.clients[to]
        self.carry_out(to, machine.receive(sender, message))

    def settle(self, held_back: Callable[[Message], bool] = lambda message: False) -> None:
        """Deliver all that is on its way, but for messages that are held back and those behind them."""
        while links := [link for link in self.deliverable() if not held_back(self.links[link][0])]:
            self.deliver(*links[0])

    def expire(self, timer: Timer) -> None:
        """Let a deadline pass."""
        self.timers.remove(timer)
        self.carry_out(SERVER, self.server.expire(timer))

    def leave(self, user: int, tell: bool = True) -> None:
        """Take a user away; `tell`: the transport reports it."""
        self.away.add(user)
        sending = self.links.get((user, SERVER), [])
        self.links[user, SERVER] = [message for message in sending if message.kind == "advertise"]
        self.trained.pop(user, None)
        if tell:
            self.disconnected.add(user)
            self.carry_out(SERVER, self.server.gone(user))

    def back(self, user: int) -> None:
        """Let a user return."""
        self.away.discard(user)
        if user in self.disconnected:
            self.disconnected.discard(user)
            self.carry_out(SERVER, self.server.back(user))
