"""A fleet's file, which `simfl plan` reads: facts about the users, and demands on their aggregates.

Its blocks of the world are those of a scenario. The choices of a plan (selection, privacy, deadlines,
quantisation, the buffer) are not in it.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from simfl.config.blocks import Bits, Block, Count, Name, Natural, Positive, Seed
from simfl.config.python_files import located_errors
from simfl.config.texts import FileName
from simfl.config.yaml_tree import plain
from simfl.errors import BadInput, ScenarioError, show
from simfl.learning.data.unpublished import Synthetic
from simfl.protocols.protocol import SIGNED_STAGES, Protocol
from simfl.protocols.registry import PROTOCOLS
from simfl.scenario import checks
from simfl.scenario.load import anchor, apply_overrides, read_tree
from simfl.scenario.messages import place, translate
from simfl.scenario.schema import Learning, Protocols, Scenario
from simfl.scenario.schema_shape import Shape, expand
from simfl.scenario.user_classes import settings_of
from simfl.scenario.world import ByDisconnect, Detect, Network, Population, Server
from simfl.world.dropout import AnyDropout, NoLosses

PATIENCE_S = 1e6
"""Seconds of a deadline that no user misses."""


def _colluders(value: Any) -> Any:
    # `type` and not `isinstance`, as True is an integer too. 1 is one user, and 1.0 is refused, not taken for
    # all.
    is_count, is_share = type(value) is int and value >= 0, type(value) is float and 0 < value < 1
    if not (is_count or is_share or value == "none"):
        forms = "users (0: the server alone), a share of them below 1, or none if nothing is to be hidden"
        raise ValueError(f"must be a number of {forms}: not {show(value)}")
    return value


def _word(value: Any) -> Any:
    # YAML reads `true` as a truth value; the words of this key are texts.
    return str(value).lower() if isinstance(value, bool) else value


class Fleet(Block):
    """A fleet of users, and the promises that its aggregates are to keep."""

    name: Name = "fleet"
    """Heads the answer; the file's name unless given."""
    seed: Seed = 1
    """The first seed of the runs that are compared."""
    population: Population
    """The users, as in a scenario."""
    network: Network
    """The links between users and server, as in a scenario."""
    server: Server = Server()
    """The server's machine, as in a scenario."""
    detect: Detect = ByDisconnect(delay_s=0.0)
    """The way in which the server learns of a loss, as in a scenario."""
    dropout: AnyDropout = NoLosses()
    """The losses of users within a round, as in a scenario."""
    profile: FileName = "reference"
    """Seconds per operation: a shipped profile's name, or a YAML file's path."""
    memory_limit_gb: Positive = 2.0
    """GB for users and data."""
    learning: Learning = Learning()
    """Data, model and local training, as in a scenario; `model: {d: ..., macs: ...}` is enough."""
    samples: Count | None = None
    """Synthetic training samples of each user; the samples of `learning.dataset` unless given."""
    clip: Positive = 1.0
    """Coordinates of updates are held within +-clip; the rest of the field decides their levels."""
    updates: Count | None = None
    """Updates that an aggregate must have; unless given, those of all users who are not lost."""
    asynchronous: Annotated[Literal["true", "false", "either"], BeforeValidator(_word)] = "false"
    """Aggregation by a buffer, in rounds, or by whichever is faster."""
    staleness_bound: Natural = 10
    """The largest staleness of an update in a buffer; LightSecAgg's App. F.5 has 10."""
    return_s: Positive | None = None
    """Seconds that a lost user is offline, for a buffer with losses."""
    collude: Annotated[Any, AfterValidator(_colluders)]
    """Users who may collude with the server: a number, a share below 1; `none` if nothing is to be hidden."""
    sigma: Bits = 40.0
    """A round is insecure with at most 2^-sigma; 40 in SecAgg+'s paper (Bell 2020)."""
    failure: Annotated[float, Field(strict=True, gt=1e-12, lt=1)] = 1e-3
    """A round fails with at most this probability."""
    within_s: Positive | None = None
    """Seconds that an aggregate may take on average."""
    user_mb: Positive | None = None
    """MB (10^6 bytes) that a user may send and receive for an aggregate, on average."""
    protocols: Protocols | None = None
    """The protocols that are compared, as in a scenario; all built-in and installed ones unless given."""

    @property
    def colluders(self) -> int | None:
        """The number of users who may collude; None where nothing is to be hidden."""
        if self.collude == "none":
            return None
        number: float = self.collude
        return int(number) if isinstance(number, int) else round(number * self.population.users)

    @property
    def entries(self) -> dict[str, Protocol]:
        """The protocols that are compared, of the requested modes."""
        # Installed packages' protocols too: the registry has them beside simfl's own.
        built_in: dict[str, Any] = {name: PROTOCOLS[name]() for name in PROTOCOLS}
        modes = {"true": (True,), "false": (False,), "either": (False, True)}[self.asynchronous]
        given: Mapping[str, Any] = built_in if self.protocols is None else self.protocols
        return {name: entry for name, entry in given.items() if entry.asynchronous in modes}

    def world(self) -> dict[str, Any]:
        """Return the part of a scenario that all scenarios of this fleet share."""
        same = ("population", "network", "server", "detect", "dropout", "learning")
        world: dict[str, Any] = {key: getattr(self, key).model_dump(mode="json") for key in same}
        if self.samples is not None:
            given = self.learning.dataset
            dataset = given if isinstance(given, Synthetic) else Synthetic()
            sizes = {"train": self.samples * self.population.users, "test": dataset.classes}
            world["learning"]["dataset"] = dataset.model_dump(mode="json") | sizes
        world |= {"name": self.name, "seed": self.seed, "profile": self.profile, "rounds": 1}
        # A plan compares many runs, so they count work without doing it, on a clock that repeats.
        world |= {"clock": "modelled", "payload": "shadow", "memory_limit_gb": self.memory_limit_gb}
        return world | {"deadlines": dict.fromkeys(SIGNED_STAGES, PATIENCE_S)}


def load_fleet(source: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Fleet:
    """Read and check a fleet.

    Args:
        source: A YAML file, a shipped fleet's name, or a mapping of the same shape.
        overrides: Values by dotted path.

    Raises:
        ScenarioError: The fleet is wrong; `problems` has all problems, each with its place.
    """
    tree, folders = read_tree(source, "fleet")
    # Twice, in the order of `load.load_tree`: before shorthands are written out, and after the overrides.
    anchor(tree, folders)
    tree = expand(Shape(Fleet), tree)
    problems = list(apply_overrides(Fleet, tree, folders, overrides or {}))
    anchor(tree, folders)
    try:
        with located_errors(BadInput):
            fleet = Fleet.model_validate(plain(tree))
            problems += [place(tree, tuple(path.split(".")), text) for path, text in _problems(fleet)]
    except ValidationError as errors:
        problems += translate(errors, tree, Fleet)
    if problems:
        raise ScenarioError(sorted(problems, key=lambda p: p.line or 0))
    return fleet


def _problems(fleet: Fleet) -> Iterator[tuple[str, str]]:
    """Yield the problems of the fleet's keys with each other, and of its world: a scenario without
    protection.

    Yields:
        (dotted path, message).
    """
    users = fleet.population.users
    if fleet.colluders is not None and fleet.colluders >= users:
        yield "collude", f"collude={fleet.collude} must be below population.users={users}"
    if fleet.updates is not None and fleet.updates > users:
        yield "updates", f"updates={fleet.updates} must not be above population.users={users}"
    named = "dataset" in fleet.learning.model_fields_set
    if fleet.samples is not None and named and not isinstance(fleet.learning.dataset, Synthetic):
        chosen = fleet.learning.dataset.kind
        yield "samples", f"must not go with learning.dataset {chosen}, which has its own: leave one out"
    if not fleet.entries:
        # With `either` there are always entries, so no third word is needed.
        which = {"true": "asynchronous", "false": "synchronous"}[fleet.asynchronous]
        yield "protocols", f"none of them is {which}: see `asynchronous`"
    # FedAvg has no masks, so the world is checked without the privacy and the buffer that a plan chooses.
    scenario = Scenario.model_validate({**fleet.world(), "protocols": ["fedavg"]})
    yield from checks.check(scenario)
    models = [settings.dropout for settings in settings_of(scenario).values()]
    lossy = [model for model in models if not isinstance(model, NoLosses)]
    if fleet.asynchronous != "false" and lossy and fleet.return_s is None:
        yield "return_s", f"missing; dropout {lossy[0].kind} needs the seconds after which lost users return"
