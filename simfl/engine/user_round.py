"""The state machine of a user's part in one round, or in one cycle of an asynchronous run, without a clock.

A driver (the session over virtual links, or a live run over sockets) tells a `UserRound` what has happened,
and is answered with what follows: go on, wait, or lose the user. Planned losses are looked up here
and nowhere else, and so is the phase to which a loss is booked: the one in which the user is missed. A user
that is lost once its upload has left is missed in the recovery.

    preparing -> training -> delayed -> submitted -> uploading -> sent -> delivered
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, assert_never

from simfl.dataplane.handles import F64, Handle
from simfl.dataplane.ops import Ops, Trainer
from simfl.learning.clipping import Clip
from simfl.population.dropout import PlannedLoss, WhenPlanned
from simfl.protocols.contracts import AnyServer, ClientMachine
from simfl.protocols.machine import Effects, Message, Update
from simfl.results.trace_codes import UpdateId


class State(IntEnum):
    """Progress of a user's update; a state is never left for an earlier one."""

    PREPARING = 0
    """The offline phase, and the download of the model; training waits for one of them or for both."""
    TRAINING = 1
    DELAYED = 2
    """Trained; the scenario delays what follows."""
    SUBMITTED = 3
    """Handed to the machine, which masks it as soon as its offline phase is done."""
    UPLOADING = 4
    SENT = 5
    """The last bit has left."""
    DELIVERED = 6
    """The server has it."""


MISSED_IN = {
    State.TRAINING: "training",
    State.DELAYED: "training",
    State.SUBMITTED: "upload",
    State.UPLOADING: "upload",
    State.SENT: "recovery",
    State.DELIVERED: "recovery",
}
"""The phase to which the loss of a user is booked; of one that is preparing, the protocol's first phase."""

AFTER = {"training": "upload", "upload": "recovery"}
"""The phase in which a user is missed that is lost right after its part of another one."""

ON_THE_WAY = (State.DELAYED, State.UPLOADING, State.SENT)
"""Nothing of the user's is at work, and yet its update is going to arrive."""


class Loss(NamedTuple):
    """The user is lost now: in which phase it is missed, and why."""

    phase: str
    why: str


class Delay(NamedTuple):
    """Go on after so many nanoseconds."""

    ns: int


Answer = Loss | Delay | None
"""The next step of a user; None: go on at once."""


@dataclass(slots=True, eq=False)
class UserRound:
    """A user's part: its machines, the model that it works on, and its state.

    ready: the offline phase is done, or there is none. downloaded: the model is there. coming: messages on
    their way to the user. lost: nothing more comes of it, as the user is lost or was told to stop. version:
    t_i, the version of `weights`. arrived_ns: when the server had the upload. steps: minibatches that were
    trained, where the scenario bounds them. samples: the update's weight.
    """

    user: int
    round: int
    id: UpdateId | None
    client: ClientMachine
    entropy: Any
    server: AnyServer
    weights: Handle
    ready: bool
    first_phase: str
    plan: PlannedLoss | None
    version: int = 0
    state: State = State.PREPARING
    lost: bool = False
    downloaded: bool = False
    coming: int = 0
    arrived_ns: int = 0
    steps: int = 0
    samples: int = 0
    update: Handle | None = None
    clipped: Handle | None = None
    life: Any = None
    """Its way from the first thing that training needs to the submitted update; None before that."""

    @property
    def phase(self) -> str:
        """The phase to which a loss of the user would be booked now."""
        return MISSED_IN.get(self.state, self.first_phase)

    @property
    def delivered(self) -> bool:
        """True once the server has the upload."""
        return self.state is State.DELIVERED

    @property
    def under_way(self) -> bool:
        """True while something is on its way from or to the user."""
        return self.coming > 0 or self.state in ON_THE_WAY

    def become(self, state: State) -> None:
        """Go on to a state; of an upload in several messages, the first one counts."""
        self.state = max(self.state, state)

    def planned(self, point: str | None) -> WhenPlanned | None:
        """Return when the scenario loses or delays the user at this point, if it does."""
        return self.plan.when if self.plan is not None and self.plan.point == point else None

    def _delay(self) -> Delay:
        assert self.plan is not None
        return Delay(self.plan.delay_ns)

    # -- training
    def may_train(self, overlap: bool) -> bool:
        """Return True when training can begin: the model is there and, without overlap, the masks are."""
        return self.state is State.PREPARING and self.downloaded and (self.ready or overlap)

    def begin_training(self) -> Answer:
        self.become(State.TRAINING)
        return Loss("training", "before training") if self.planned("training") == "before_send" else None

    def train(self, ops: Ops, trainer: Trainer, seed: Handle, steps: Any = None) -> Effects:
        self.update = ops.train(trainer, self.weights, self.user, seed, self.round, steps)
        return []

    def end_training(self) -> Answer:
        when = self.planned("training")
        match when:
            case "mid_send":
                return Loss("training", "amid training")
            case "after_send":
                return Loss(AFTER["training"], "after training")
            case "delay":
                self.become(State.DELAYED)
                return self._delay()
            case None | "before_send" | "not_counted":
                return None  # the one is lost before it trains, the other at its upload
            case _:
                assert_never(when)

    def weigh(self, ops: Ops, clip: Clip | None, samples: int, factor: float | None = None) -> Update:
        """Return the update as the machine gets it: times a factor, and held within the scenario's bound.

        It is clipped here and not in the training, where content would be asked for before others of the
        cohort are there.
        """
        assert self.update is not None
        self.samples = samples
        if factor is not None:
            self.update = ops.scale(self.update, factor)
        if clip is not None:
            self.clipped = ops.run_uncharged(clip.changes, (1, 1, F64), self.update)
            self.update = ops.clip(clip.apply, self.update)
        return Update(self.update, samples, self.id, self.version)

    def submit(self, *how: Any) -> Effects:
        """Hand the update to the machine, as `weigh` returns it."""
        effects: Effects = self.client.submit(self.weigh(*how))
        return effects

    # -- sending
    def send(self, message: Message) -> Answer:
        if message.point == "upload":
            self.become(State.UPLOADING)
        when = self.planned(message.point)
        match when:
            case "before_send":
                return Loss(message.phase, f"before {message.kind} was sent")
            case "delay":
                return self._delay()
            case None | "mid_send" | "after_send" | "not_counted":
                return None  # it is lost later
            case _:
                assert_never(when)

    def breaks_off(self, message: Message) -> bool:
        """Return True for a message of which only half is sent, as the user is lost meanwhile."""
        return self.planned(message.point) == "mid_send"

    def left(self, message: Message) -> Answer:
        """The last bit of a message, or of its half, has left."""
        if self.breaks_off(message):
            return Loss(message.phase, f"amid sending {message.kind}")
        if message.point == "upload":
            self.become(State.SENT)
        if self.planned(message.point) == "after_send":
            return Loss(AFTER.get(message.phase, message.phase), f"after sending {message.kind}")
        return None

    def not_counted(self, message: Message) -> Loss | None:
        """A message is at the server whole. Return the loss of a user whose upload is not counted.

        LightSecAgg's testbed loses users so (section 7): they upload, and are gone when the server recovers.
        """
        counted = self.planned(message.point) != "not_counted"
        return None if counted else Loss(message.phase, f"{message.kind} was not counted")

    def deliver(self, at_ns: int) -> None:
        self.become(State.DELIVERED)
        self.arrived_ns = at_ns
