"""The driver without time: messages in order of sending; when none is left, the oldest timer fires.

For tests and for trying a machine by hand. A `Fate` says what becomes of a user's messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from simfl.protocols.machine import (
    SERVER,
    Abort,
    Effects,
    GiveUp,
    Ignore,
    Ready,
    Refuse,
    Result,
    Send,
    Timer,
    Update,
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
    """What a round came to."""

    result: Result | None = None
    reason: str | None = None
    gave_up: list[GiveUp] = field(default_factory=list)
    ignored: list[tuple[int, Ignore]] = field(default_factory=list)
    refused: list[tuple[int, Refuse]] = field(default_factory=list)
    sent: list[tuple[int, int, Any]] = field(default_factory=list)
    verdict: Verdict | None = None


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
                case Result():
                    out.result = effect
                case Abort(reason):
                    out.reason = reason
                case GiveUp():
                    out.gave_up.append(effect)
                case Ignore():
                    out.ignored.append((party, effect))
                case Refuse():
                    out.refused.append((party, effect))
                case Verdict():
                    out.verdict = effect

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
