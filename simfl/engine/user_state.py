"""States of a user's part in a round or a cycle, and the phase in which it is missed in each of them.

preparing -> training -> delayed -> submitted -> uploading -> sent -> delivered
"""

from enum import IntEnum
from typing import NamedTuple


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
    """Loss of a user now: the phase in which it is missed, and the reason."""

    phase: str
    why: str


class Delay(NamedTuple):
    """Continue after `ns` nanoseconds."""

    ns: int


NextStep = Loss | Delay | None
"""The next step of a user; None: continue at once."""
