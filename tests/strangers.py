"""A stranger's kind of each thing: the code of a file, and where a scenario names it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.engine.harness import SYNC


@dataclass(frozen=True)
class Case:
    """A class `Theirs` with one field of its own, in a file; `lacks` its one abstract method."""

    path: str
    thing: str
    code: str
    value: dict[str, Any]
    wrong: tuple[dict[str, Any], str]
    lacks: str
    scenario: dict[str, Any]


SELECTION = Case(
    "selection",
    "selection",
    """
from pydantic import Field
from simfl.world.selection import Selection


class Theirs(Selection):
    users: int = Field(2, ge=1)

    def select(self, available, history, rng):
        if history.counts.sum() > 99:
            raise LookupError("too long")
        return available[: self.users]

    def cohort(self, users):
        return self.users

    def problems(self, users):
        if self.users == 13:
            yield "users", "users=13 is unlucky"


class Half(Selection):
    pass


class Raises(Selection):
    def select(self, available, history, rng):
        return 1 // 0

    def cohort(self, users):
        return 3


class RaisesEarly(Theirs):
    def problems(self, users):
        return 1 // 0
""",
    {"users": 3},
    ({"users": 0}, "selection.users: must be at least 1, not 0"),
    "select",
    {},
)
PARTITION = Case(
    "learning.partition",
    "partition",
    """
from pydantic import Field
from simfl.learning.partition import Partition


class Theirs(Partition):
    every: int = Field(1, ge=1)

    def deal(self, split, users, rng):
        return [range(user, len(split.y_train), users * self.every) for user in range(users)]


class Half(Partition):
    pass


class Raises(Partition):
    def deal(self, split, users, rng):
        return 1 // 0
""",
    {"every": 2},
    ({"every": 0}, "learning.partition.every: must be at least 1, not 0"),
    "deal",
    {},
)
AVAILABILITY = Case(
    "population.availability",
    "availability",
    """
from pydantic import Field
from simfl.world.availability import Availability, UserStates


class Theirs(UserStates):
    on_s: float = Field(2.0, gt=0)

    def states(self, user, rng):
        while True:
            yield self.on_s, True
            yield 0.1 * rng.random(), False


class Half(UserStates):
    pass


class Raises(UserStates):
    def states(self, user, rng):
        yield 0.001, True
        yield 1 // 0, False
""",
    {"on_s": 3.5},
    ({"on_s": 0}, "population.availability.on_s: must be above 0, not 0"),
    "states",
    {},
)
DROPOUT = Case(
    "dropout",
    "drop-out",
    """
from pydantic import Field
from simfl.world.dropout import Dropout, PlannedLoss


class Theirs(Dropout):
    p: float = Field(0.0, ge=0, le=1)

    def planned(self, user, index, streams):
        out = streams.rng("losses", "cell", user % 2, index).random() < self.p
        return PlannedLoss("upload", "mid_send") if out else None


class Half(Dropout):
    pass


class Raises(Dropout):
    def planned(self, user, index, streams):
        return 1 // 0
""",
    {"p": 1e-9},
    ({"p": 2.0}, "dropout.p: must be at most 1, not 2.0"),
    "planned",
    {},
)
SERVER = Case(
    "learning.server",
    "server rule",
    """
from pydantic import Field
from simfl.learning.server_opt import ServerRule


class Theirs(ServerRule):
    rows = 1
    beta: float = Field(0.9, ge=0, lt=1)

    def remember(self, state, g):
        return self.beta * state + g

    def step(self, state, lr):
        return lr * state


class Half(ServerRule):
    pass


class Raises(ServerRule):
    def step(self, state, lr):
        return 1 // 0
""",
    {"beta": 0.5},
    ({"beta": 1.0}, "learning.server.beta: must be below 1, not 1.0"),
    "step",
    {"payload": "real"},
)
CLIP = Case(
    "learning.clip",
    "clip",
    """
from pydantic import Field
from simfl.learning.clipping import Clip


class Theirs(Clip):
    factor: float = Field(0.5, gt=0)

    def clipped(self, delta):
        return delta * delta.dtype.type(self.factor)


class Half(Clip):
    pass


class Raises(Clip):
    def clipped(self, delta):
        return 1 // 0
""",
    {"factor": 0.25},
    ({"factor": 0.0}, "learning.clip.factor: must be above 0, not 0.0"),
    "clipped",
    {"payload": "real"},
)
DATASET = Case(
    "learning.dataset",
    "data set",
    """
import numpy as np
from pydantic import Field
from simfl.learning.data import Dataset, Split


class Theirs(Dataset):
    samples: int = Field(60, ge=6)

    def load(self, rng, root):
        x = rng.standard_normal((self.samples, 3), np.float32)
        y = (x.sum(axis=1) > 0).astype(np.int64)
        return Split(x, y, x[:6], y[:6], classes=2)


class Half(Dataset):
    pass


class Raises(Dataset):
    def load(self, rng, root):
        return 1 // 0
""",
    {"samples": 90},
    ({"samples": 3}, "learning.dataset.samples: must be at least 6, not 3"),
    "load",
    {},
)
MODEL = Case(
    "learning.model",
    "model",
    """
from math import prod
from pydantic import Field
from simfl.learning.models import Model


class Theirs(Model):
    hidden: int = Field(3, ge=1)

    def build(self, shape, classes):
        from torch import nn

        last = nn.Linear(self.hidden, classes)
        return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), self.hidden), last)


class Half(Model):
    pass


class Raises(Model):
    def build(self, shape, classes):
        return 1 // 0
""",
    {"hidden": 2},
    ({"hidden": 0}, "learning.model.hidden: must be at least 1, not 0"),
    "build",
    {},
)
LOSS = Case(
    "learning.loss",
    "loss",
    """
from pydantic import Field
from simfl.learning.losses import Loss


class Theirs(Loss):
    power: float = Field(2.0, ge=1)

    def __call__(self, logits, y):
        right = logits.gather(1, y[:, None]).squeeze(1)
        return (logits.logsumexp(1) - right) ** self.power


class Half(Loss):
    pass


class Raises(Loss):
    def __call__(self, logits, y):
        return 1 // 0
""",
    {"power": 1.5},
    ({"power": 0.5}, "learning.loss.power: must be at least 1, not 0.5"),
    "__call__",
    {"payload": "real"},
)
LINKS = Case(
    "network.users.varies",
    "link model",
    """
from pydantic import Field
from simfl.world.link_models import LinkStates


class Theirs(LinkStates):
    gone_s: float = Field(0.05, gt=0)

    def states(self, user, rng):
        while True:
            yield 0.1 + rng.random(), 1.0, 0.5
            yield self.gone_s, 0.0, 0.0


class Half(LinkStates):
    pass


class Raises(LinkStates):
    def states(self, user, rng):
        yield 1 // 0, 1.0, 1.0
""",
    {"gone_s": 0.25},
    ({"gone_s": 0}, "network.users.varies.gone_s: must be above 0, not 0"),
    "states",
    {},
)
BATTERY = Case(
    "population.energy.battery",
    "battery",
    """
from pydantic import Field
from simfl.config.blocks import Fixed
from simfl.world.energy import BatteryStates


class Theirs(BatteryStates):
    capacity_j: float = 5e4
    level: Fixed = Fixed(value=0.5)
    comes_back_at: float = 0.1
    use_w: float = Field(0.5, gt=0)

    def states(self, user, rng):
        while True:
            yield 0.1 + rng.random(), 0.0, self.use_w
            yield 0.2, 10.0, 0.05


class Half(BatteryStates):
    capacity_j: float = 5e4
    level: Fixed = Fixed(value=0.5)
    comes_back_at: float = 0.1


class Raises(Theirs):
    def states(self, user, rng):
        yield 1 // 0, 0.0, 1.0
""",
    {"use_w": 0.25},
    ({"use_w": 0}, "population.energy.battery.use_w: must be above 0, not 0"),
    "states",
    {"population": {**SYNC["population"], "energy": {"cpu_w": 2.0}}},
)
CASES = [SELECTION, PARTITION, AVAILABILITY, DROPOUT, LINKS, BATTERY, SERVER, CLIP, DATASET, MODEL, LOSS]
