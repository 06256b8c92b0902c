"""The composition root: from a validated scenario to sessions that can be driven.

What needs the data or the model to be known (the length of an update, the largest weight, the bound of
the field) is checked here, before anything runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from simfl import profiles
from simfl import trace as rows
from simfl.crypto import quantize
from simfl.engine import durations
from simfl.engine.availability import Availability
from simfl.engine.buffers import Buffers
from simfl.engine.network import Network
from simfl.engine.pool import PooledOps
from simfl.engine.population import Losses, draw
from simfl.engine.rounds import Rounds
from simfl.engine.session import Session
from simfl.engine.virtual import Environment, nanoseconds
from simfl.engine.world import Machines, World
from simfl.learning import data, partition, server_opt
from simfl.learning.trainer import Trainer
from simfl.protocols.base import Params
from simfl.protocols.ops import EagerOps, Ops, ShadowOps
from simfl.protocols.registry import PROTOCOLS
from simfl.protocols.server import grace
from simfl.scenario import schema
from simfl.scenario.intervals import read_intervals
from simfl.scenario.load import Problem, ScenarioError
from simfl.scenario.sparsity import sparsity
from simfl.selection.registry import SCHEMES
from simfl.streams import Entropy, OsEntropy, Streams


@dataclass(frozen=True)
class Study:
    """A scenario with its world, ready to make a session for each protocol."""

    scenario: schema.Scenario
    streams: Streams
    trainer: Trainer
    world: World
    profile: profiles.Profile

    def session(self, name: str, clock: durations.Clock) -> Session:
        """A fresh session of one of the scenario's protocols."""
        s = self.scenario
        spec = s.protocols[name]
        kind = PROTOCOLS[spec.protocol]
        machines = Machines(
            name,
            kind,
            params(s, spec, self.trainer.d),
            _entropy(s, self.streams, name),
            Losses(s.dropout, s.population.users, self.streams, kind.points),
        )
        make = Buffers if kind.asynchronous else Rounds
        return make(self.world, machines, operations(s), clock, self.trainer, self.streams, server_opt.apply)


def build(scenario: schema.Scenario) -> Study:
    """Load the data, deal it out, draw the world.

    Raises:
        ScenarioError: the field is too small for the sum, a profile or a device is not there, or the
            data cannot be dealt out as asked.
    """
    s = scenario
    streams = Streams(s.seed)
    profile = _or_error(s, "profile", partial(profiles.load, s.profile))
    trainer = make_trainer(s, streams)
    _check_overflow(s, trainer)
    return Study(s, streams, trainer, make_world(s, streams, trainer), profile)


def make_trainer(s: schema.Scenario, streams: Streams) -> Trainer:
    """The data dealt out, and the model on its device."""
    spec = s.learning
    split = data.DATASETS[spec.dataset](streams.rng("data"))
    rng, users = streams.rng("partition"), s.population.users
    if isinstance(spec.partition, schema.Dirichlet):
        part = spec.partition
        deal = partial(partition.dirichlet, split.y_train, users, part.beta, rng, part.min_samples)
    else:
        deal = partial(partition.iid, split.y_train, users, rng)
    parts = _or_error(s, "learning.partition", deal)
    trainer: Trainer = _or_error(
        s,
        "learning.device",
        lambda: Trainer(split, parts, spec.model, spec.epochs, spec.batch_size, spec.lr, spec.device),
    )
    return trainer


def make_world(s: schema.Scenario, streams: Streams, trainer: Trainer) -> World:
    """What all protocols share."""
    users, links, server = s.population.users, s.network.users, s.network.server
    availability = make_availability(s, streams)

    def network(env: Environment) -> Network:
        assert links.uplink_mbps is not None
        assert links.downlink_mbps is not None
        return Network(
            env, links.uplink_mbps, links.downlink_mbps, links.latency_s,
            server.uplink_mbps, server.downlink_mbps, jitter if links.jitter_s else None,
        )  # fmt: skip

    def jitter(user: int, up: bool) -> Iterator[float]:
        assert links.jitter_s is not None
        rng = streams.rng("jitter", user, "up" if up else "down")
        while True:
            yield float(draw(links.jitter_s, rng, 1)[0])

    def select(available: Sequence[int], history: Sequence[frozenset[int]], index: int) -> list[int] | None:
        k = s.selection.users if isinstance(s.selection, schema.SelectRandom) else None
        return SCHEMES[s.selection.kind](available, history, k, streams.rng("selection", index))

    deadlines = {name: nanoseconds(deadline.after_s) for name, deadline in s.deadlines.given.items()}
    quorums = {
        name: deadline for name, deadline in s.deadlines.given.items() if isinstance(deadline, schema.Quorum)
    }
    deadlines |= {grace(name): nanoseconds(quorum.grace_s) for name, quorum in quorums.items()}
    buffer = s.buffer
    return World(
        users=users,
        rounds=s.rounds,
        slowdown=draw(s.population.devices.slowdown, streams.rng("devices"), users).tolist(),
        cores=s.population.devices.cores,
        server_slowdown=s.server.slowdown,
        server_cores=s.server.cores,
        network=network,
        overhead_ns=nanoseconds(s.network.overhead_s),
        overlap=s.overlap,
        deadlines_ns=deadlines,
        quorum={name: quorum.fraction for name, quorum in quorums.items()},
        disconnect_ns=nanoseconds(s.detect.delay_s) if isinstance(s.detect, schema.ByDisconnect) else None,
        in_round=availability.in_round,
        changes=availability.changes if availability.timed else None,
        samples=trainer.samples,
        select=select,
        server_lr=s.learning.server_lr,
        evaluate_every=s.learning.evaluate_every,
        concurrency=buffer.concurrency if buffer else None,
        return_ns=nanoseconds(buffer.return_s) if buffer and buffer.return_s else None,
        horizon_ns=nanoseconds(s.horizon_s) if s.horizon_s else None,
    )


def make_availability(s: schema.Scenario, streams: Streams) -> Availability:
    """When users are online.

    An asynchronous run waits for as long as users come and go, so one in which too few ever come is refused.
    """
    spec, users = s.population.availability, s.population.users
    intervals = read_intervals(spec.file, users) if isinstance(spec, schema.Trace) else {}
    availability = Availability(spec, users, streams, intervals)
    if s.buffer is None:
        return availability
    for name, protocol in s.protocols.items():
        needed = {"buffer.K": s.buffer.K}
        if PROTOCOLS[protocol.protocol].offline:
            needed["privacy.U"] = params(s, protocol, 0).U
        for bound, least in needed.items():
            if availability.ever_online < least:
                there = f"{availability.ever_online} of {users} users are ever online"
                message = f"{there}, but protocol {name} needs {bound}={least}"
                raise error(s, "population.availability", message)
    return availability


def params(s: schema.Scenario, spec: schema.Protocol, d: int) -> Params:
    """A protocol's public parameters."""
    T, D = (s.privacy.T, s.privacy.D) if s.privacy else (0, 0)
    U = (s.privacy.U if s.privacy else None) or max(1, s.cohort - D)
    graph = sparsity(s, spec)
    weighting = getattr(spec, "staleness", None)
    staleness: Callable[[int], float] = server_opt.constant
    if isinstance(weighting, schema.Polynomial):
        staleness = partial(server_opt.polynomial, alpha=weighting.alpha)
    clip, levels = (s.quantization.clip, s.quantization.levels) if s.quantization else (1.0, 1)
    buffered = {"K": s.buffer.K, "staleness_bound": s.buffer.staleness_bound} if s.buffer else {}
    return Params(
        d=d, q=s.field.q, T=T, U=U, t=graph.t, majority=graph.majority, k=graph.k, p=graph.p,
        clip=clip, levels=levels, staleness=staleness, c_g=getattr(spec, "c_g", 1),
        session=s.name.encode(), **buffered,
    )  # fmt: skip


def operations(s: schema.Scenario) -> Ops:
    """The data plane that a scenario asks for."""
    if s.payload == "shadow":
        return ShadowOps(s.field.q)
    if s.workers:
        return PooledOps(s.field.q, s.workers, round(s.memory_limit_gb * 1e9))
    return EagerOps(s.field.q)


def clocks(study: Study) -> Callable[[str], durations.Clock]:
    """Protocol name -> its clock.

    Raises:
        ScenarioError: there is no recording to replay, or it lacks a protocol.
    """
    s = study.scenario
    match s.clock:
        case schema.Measured():
            return lambda name: durations.Measured()
        case schema.Modelled():
            return lambda name: durations.Modelled(study.profile.seconds)
        case schema.Recorded(dir=folder):
            traces = _or_error(s, "clock", partial(rows.read, Path(folder) / "trace.jsonl"))
            for name in s.protocols:
                if name not in traces:
                    raise error(s, "clock", f"the recording in {folder} has no protocol {name}")
            return lambda name: durations.Recorded(traces[name])
    raise TypeError(f"unknown clock {s.clock}")  # pragma: no cover


def error(s: schema.Scenario, path: str, message: str) -> ScenarioError:
    """A problem found while building, placed like those found while loading."""
    return ScenarioError((Problem(s.name, None, path, message),))


def _or_error(s: schema.Scenario, path: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except ValueError as problem:
        raise error(s, path, str(problem)) from None


def _entropy(s: schema.Scenario, streams: Streams, name: str) -> Callable[..., Any]:
    if s.entropy == "os":
        return OsEntropy
    root = streams.bytes("entropy", name)
    return partial(Entropy, root)


def _check_overflow(s: schema.Scenario, trainer: Trainer) -> None:
    """Synchronous sums: users x largest weight x clipped range x levels must stay inside the field."""
    kinds = [PROTOCOLS[spec.protocol] for spec in s.protocols.values()]
    masked = any(kind.offline and not kind.asynchronous for kind in kinds)
    if not masked or s.quantization is None or s.quantization.on_overflow == "wrap":
        return
    heaviest = max(trainer.samples(user) for user in range(s.population.users))
    step = math.ceil(s.quantization.clip * s.quantization.levels)
    largest, bound = s.cohort * heaviest * step, quantize.overflow_bound(s.field.q)
    if largest >= bound:
        raise error(
            s,
            "quantization",
            f"a sum of {s.cohort} users x {heaviest} samples x {s.quantization.clip:g} clip x "
            f"{s.quantization.levels} levels can reach {largest}, at or above (q - 1)/2 = {bound}, and "
            f"would wrap around: use at most {max(1, s.quantization.levels * bound // largest)} levels, a "
            "smaller clip, or on_overflow: wrap",
        )
