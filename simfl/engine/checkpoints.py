"""Resumable sessions: the notes at the end of each round, and the return of a resumed session to that state.

A resumed session goes over its finished rounds once more: all that the timeline holds follows from the
scenario, and under the measured clock from the durations that were recorded. Content is not made on the way.
Operations are deferred, and the global models that users still work with come from the checkpoint. A
mask or a buffered update of a finished round is made when a later round asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simfl.dataplane.handles import Handle
from simfl.engine.clocks import Key, Spans
from simfl.engine.setup import Standing

if TYPE_CHECKING:
    from simfl.engine.session import Session


@dataclass(frozen=True)
class Past:
    """The finished rounds of a session that is resumed.

    rounds: how many. models: version -> global model [1, d], as of `Standing`. moments: [2, d] if any.
    """

    rounds: int = 0
    models: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)
    moments: NDArray[np.float64] | None = None


class Checkpoints:
    """Follows a session's global model; the session calls it."""

    def __init__(self, session: Session, past: Past | None = None) -> None:
        self.past = past or Past()
        self.models: dict[int, Handle] = {0: session.host.weights}
        session.ops.deferring = self.past.rounds > 0

    def stepped(self, session: Session) -> None:
        """Record a new global model."""
        ops, host, past = session.ops, session.host, self.past
        if not ops.executes:
            return
        self.models = {**self.models, host.version: host.weights}
        if ops.deferring:
            ops.replace(host.weights, past.models.get(host.version))
            if host.moments is not None:
                ops.replace(host.moments, past.moments if host.version == max(past.models) else None)

    def standing(self, session: Session) -> Standing:
        """Note the state of the session at the end of a round."""
        if session.ops.executes:
            used = {id(task.weights) for task in session.at_work()} | set(map(id, session.host.models))
            self.models = {version: model for version, model in self.models.items() if id(model) in used}
        if session.round == self.past.rounds:
            session.ops.deferring = False
        running = tuple(_running(session)) if session.clock.timing else ()
        models, moments = (self.models, session.host.moments) if session.ops.executes else ({}, None)
        return Standing(len(session.trace), models, moments, running)


def _running(session: Session) -> list[tuple[Key, Spans]]:
    """The steps in progress, which the trace does not have yet."""
    found = []
    for device in (session.server, *session.devices.values()):
        for lane in (device.protocol, device.training):
            job = lane.current
            if job is not None:
                found.append(((job.round, device.party, lane.name, job.call, job.what), job.spans))
    return found
