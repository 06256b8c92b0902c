"""What a scenario may say: frozen pydantic models, one per block of the YAML file.

The blocks live in the modules beside this one, by theme; every one of them has its name here too.
"""

from __future__ import annotations

from typing import Any, Literal

from simfl.blocks import GREATEST as GREATEST
from simfl.blocks import LEAST as LEAST
from simfl.blocks import Block as Block
from simfl.blocks import Count as Count
from simfl.blocks import Distribution as Distribution
from simfl.blocks import Exponential as Exponential
from simfl.blocks import Fixed as Fixed
from simfl.blocks import Fraction as Fraction
from simfl.blocks import LogNormal as LogNormal
from simfl.blocks import Name as Name
from simfl.blocks import Natural as Natural
from simfl.blocks import NonNegative as NonNegative
from simfl.blocks import Positive as Positive
from simfl.blocks import Seed as Seed
from simfl.blocks import Text as Text
from simfl.blocks import Threads as Threads
from simfl.blocks import Uniform as Uniform
from simfl.blocks import shorthand as shorthand
from simfl.population.dropout import AnyDropout, NoLosses
from simfl.scenario.learning import Data as Data
from simfl.scenario.learning import Learning as Learning
from simfl.scenario.protocols import Entry as Entry
from simfl.scenario.protocols import FieldOfSums as FieldOfSums
from simfl.scenario.protocols import Privacy as Privacy
from simfl.scenario.protocols import Protocols as Protocols
from simfl.scenario.protocols import Quantization as Quantization
from simfl.scenario.rounds import Buffer as Buffer
from simfl.scenario.rounds import ByDisconnect as ByDisconnect
from simfl.scenario.rounds import ByTimeout as ByTimeout
from simfl.scenario.rounds import Deadline as Deadline
from simfl.scenario.rounds import Deadlines as Deadlines
from simfl.scenario.rounds import Detect as Detect
from simfl.scenario.rounds import FixedDeadline as FixedDeadline
from simfl.scenario.rounds import Quorum as Quorum
from simfl.scenario.world import PRESETS_MBPS as PRESETS_MBPS
from simfl.scenario.world import Clock as Clock
from simfl.scenario.world import Devices as Devices
from simfl.scenario.world import Measured as Measured
from simfl.scenario.world import Modelled as Modelled
from simfl.scenario.world import Network as Network
from simfl.scenario.world import Population as Population
from simfl.scenario.world import Recorded as Recorded
from simfl.scenario.world import Server as Server
from simfl.scenario.world import ServerLink as ServerLink
from simfl.scenario.world import UserLink as UserLink
from simfl.selection.schemes import All, AnySelection


class Scenario(Block):
    """A whole study: one world, and the protocols that are compared on it."""

    name: Name = "scenario"
    """Heads tables and names the run's folder; the file's name unless given."""
    seed: Seed
    """Every draw comes from it."""
    clock: Clock
    """How long a step takes."""
    profile: Text = "reference"
    """Seconds per operation for `clock: modelled`: a shipped profile's name, or a YAML file's path."""
    payload: Literal["real", "shadow"] = "real"
    """`shadow` counts the work and its bytes without doing it."""
    entropy: Literal["seeded", "os"] = "seeded"
    """Where keys and masks come from; `os` cannot be replayed."""
    audit: Literal["exact", "galois"] = "exact"
    """What is checked: every aggregate; with `galois` also coding and sharing, against that library."""
    workers: Threads = 0
    """Threads for the real work; 0 does it in line."""
    memory_limit_gb: Positive = 2.0
    """What a run may hold at once, predicted before it starts."""
    rounds: Count
    """Rounds, or aggregations of the buffer."""
    horizon_s: Positive | None = None
    """A run ends at this virtual time at the latest."""
    record_updates: bool = False
    """Keeps aggregates and updates in files, for `simfl privacy`."""
    overlap: bool = True
    """The offline phase runs beside training; `false` puts it first."""
    population: Population
    """The users."""
    network: Network
    """The links between users and server."""
    server: Server = Server()
    """The server's machine."""
    detect: Detect
    """How the server learns of a loss."""
    deadlines: Deadlines
    """How long the server waits in each collecting state."""
    dropout: AnyDropout = NoLosses()
    """Who is lost within a round, and where."""
    selection: AnySelection = All()
    """Who of the available takes part in a round."""
    buffer: Buffer | None = None
    """For asynchronous protocols, which need it."""
    privacy: Privacy | None = None
    """What masked protocols withstand; those that have thresholds need it."""
    field: FieldOfSums = FieldOfSums()
    """The field of masks and sums."""
    quantization: Quantization | None = None
    """From floats to the field; masked protocols need it."""
    learning: Learning = Learning()
    """Data, model and training."""
    protocols: Protocols
    """What is compared: a list of names, or a mapping from names of your own to settings."""

    @property
    def asynchronous(self) -> bool:
        """True if its protocols are: one scenario compares protocols of one mode."""
        return any(
            getattr(entry, "asynchronous", self.buffer is not None) for entry in self.protocols.values()
        )

    @property
    def cohort(self) -> int:
        """N of a round: the most users that it can hold."""
        return min(self.selection.cohort(self.population.users), self.population.users)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as plain data: the classes of protocols are made anew from it, a file's own too."""
        return Scenario.model_validate, (self.model_dump(mode="json"),)

    def of(self, name: str) -> Scenario:
        """The scenario as one entry of `protocols` sees it."""
        entry = self.protocols[name]
        learning = self.learning
        if entry.partition is not None:
            learning = learning.model_copy(update={"partition": entry.partition})
        update = {"selection": entry.selection or self.selection, "learning": learning}
        return self.model_copy(update=update)
