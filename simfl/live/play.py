"""A live run on one machine: users in processes of their own, real sockets, real time.

The processes are forked when data, models and code are there and warm. A user's process answers for nothing
but its users: it trains, masks and waits as they would, and reports its rows at the end.
"""

import asyncio
import gc
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from simfl.dataplane.eager import EagerOps
from simfl.engine.session import Session
from simfl.engine.warm_up import warm
from simfl.errors import BadInput, ScenarioError
from simfl.experiment.assumptions import assumed
from simfl.experiment.build import Experiment, build, make_clocks
from simfl.folder.result import Result, atomic
from simfl.learning.trainer import one_thread
from simfl.live.buffer_server import LiveBufferServer
from simfl.live.buffer_user import LiveBufferUser
from simfl.live.connection import Wires
from simfl.live.merge import merged
from simfl.live.parts import Parts
from simfl.live.server import LiveServer
from simfl.live.unplayed import problems
from simfl.live.user import LiveUser
from simfl.live.wire import Codec, messages
from simfl.live.worker import started
from simfl.results import trace as rows
from simfl.results.summary import Measurement
from simfl.results.trace import SERVER, Row
from simfl.results.trace_reader import TraceError, rows_of
from simfl.scenario.messages import error
from simfl.scenario.schema import Scenario
from simfl.simulation import measurement
from simfl.virtual_time import NS

LinkKind = Literal["user", "none"]
WARN_OVERRUN = 0.02
WARN_HELD_S = 0.05
"""Above these, a run's figures are those of this machine."""


@dataclass(frozen=True)
class Figures:
    """Facts of one protocol's live run. overrun: the share of step time by which steps were late, as this
    machine could not deliver them; held_s: the longest real work of a step, during which its process heard
    nothing; refused: frames and connections that were cut off, by reason; silent: users without a report."""

    wall_s: float
    overrun: float
    held_s: float
    refused: dict[str, int]
    silent: tuple[int, ...]


def prepared(scenario: Scenario) -> Experiment:
    """Return the experiment of a scenario that can be played; ScenarioError with every key that cannot."""
    study = build(scenario)
    found = [error(scenario, path, message) for path, message in problems(study)]
    if found:
        raise ScenarioError([problem for one in found for problem in one.problems])
    return study


def play(
    study: Experiment,
    out: Path | None = None,
    links: LinkKind = "user",
    processes: int | None = None,
    tell: Callable[[str, Figures], None] = lambda name, figures: None,
) -> tuple[Result, dict[str, Figures]]:
    """Play a scenario's protocols one after the other, in real time.

    Args:
        study: what `prepared` returned.
        out: a folder for the run's files; none are written unless given.
        links: shaped in user space, or not at all.
        processes: among which the users are dealt; one for each user unless given.
        tell: called after each protocol.
    """
    s = study.scenario
    users = s.population.users
    if processes is not None and not 1 <= processes <= users:
        raise BadInput(f"processes: {processes} must be from 1 to the number of users, {users}")
    dealt = [range(k, users, processes or users) for k in range(processes or users)]
    result, figures = Result(s), dict[str, Figures]()
    result.assumed = assumed(study)
    with one_thread(any(trainer.by_torch for trainer in study.trainers.values())):
        for name in s.protocols:
            result.traces[name], result.measured[name], figures[name] = _one(study, name, links, dealt)
            tell(name, figures[name])
    if out is not None:
        result.write(out)
        content = {
            "links": links,
            "processes": len(dealt),
            "protocols": {n: asdict(f) for n, f in figures.items()},
        }
        with atomic(out / "live.json") as file:
            file.write(json.dumps(content, indent=2) + "\n")
    return result, figures


def _one(
    study: Experiment, name: str, links: LinkKind, dealt: Sequence[range]
) -> tuple[rows.Trace, list[Measurement], Figures]:
    s, trainer = study.scenario.of(name), study.trainers[name]
    kind, params = s.protocols[name], s.params(name, trainer.d)
    warm(kind, params, s.cohort, trainer)
    up, down = messages(kind, params)
    users, shaped = s.population.users, links == "user"
    wires = Wires(
        up=Codec(up, kind, params, users),
        down=Codec(down, kind, params, users),
        most_bytes=2**16 + 64 * users + 8 * trainer.d * max(4, users),
        token=secrets.token_hex(16),
        links=study.people.links if shaped else None,
        server_link=study.people.server_link if shaped else None,
        jitter=study.people.jitter(),
    )

    def session(make: Callable[..., Session]) -> Session:
        return study.session(name, make_clocks(study)(name), EagerOps(params.q), make=partial(make, wires))

    async def users_of(mine: range, port: int) -> None:
        worker = await started(partial(warm, kind, params, s.cohort, trainer))
        one = LiveBufferUser if kind.asynchronous else LiveUser
        made = (session(partial(_user, one, user, port, worker)) for user in mine)
        await asyncio.gather(*(user.run() for user in made if isinstance(user, LiveUser)))

    async def serve(tell_port: Callable[[int], None]) -> Parts:
        server = session(LiveBufferServer if kind.asynchronous else LiveServer)
        assert isinstance(server, Parts)
        listening = await asyncio.get_running_loop().create_server(server.connection, "127.0.0.1", 0)
        tell_port(listening.sockets[0].getsockname()[1])
        try:
            await server.run()
        finally:
            listening.close()
        return server

    began = time.monotonic()
    with _forked(users_of, dealt) as tell_port:
        server = asyncio.run(serve(tell_port))
    wall_s = time.monotonic() - began
    parts: dict[int, list[Row]] = {SERVER: list(server.trace)}
    for user, lines in server.reports.items():
        try:
            parts[user] = [row for row in rows_of("".join(lines), users) if _is_own(row, user, s.rounds)]
        except TraceError as fault:
            server.refused[str(fault)] += 1
    trace = merged(parts, server.broken_off)
    trace.timed_by = server.clock.timed_by
    measured = [asyncio.run(measurement(server.ops, closed, None)) for closed in server.audited()]
    done = server.reported.values()
    late_ns = server.late_ns + sum(one.late_ns for one in done)
    steps_ns = server.steps_ns + sum(one.steps_ns for one in done)
    silent = tuple(sorted(set(range(users)) - server.reported.keys()))
    held_s = max([server.held_ns, *(one.held_ns for one in done)]) / NS
    overrun = late_ns / max(1, steps_ns)
    return trace, measured, Figures(wall_s, overrun, held_s, dict(server.refused), silent)


def _user(
    one: type[LiveUser], user: int, port: int, worker: Executor, wires: Wires, *parts: object
) -> LiveUser:
    return one(wires, user, ("127.0.0.1", port), worker, *parts)  # type: ignore[arg-type]


def _is_own(row: Row, user: int, rounds: int) -> bool:
    """Return True for a row that this user can know of."""
    match row:
        case rows.Step() | rows.Ignored() | rows.Refused():
            return row.party == user and row.round < rounds
        case rows.Sent():
            return user == (row.sender if row.arrived is None else row.to) and row.round < rounds
        case rows.Lost():
            return row.user == user and row.round < rounds
        case _:
            return False


@contextmanager
def _forked(
    users_of: Callable[[range, int], object], dealt: Sequence[range]
) -> Iterator[Callable[[int], None]]:
    """Fork a process for each part of the users; give what tells them the port. All are reaped at the end."""
    out, into = os.pipe()
    children: list[int] = []
    sys.stdout.flush()
    sys.stderr.flush()
    gc.collect()
    gc.freeze()  # what is there is not looked at any more, or each process would copy all of it
    try:
        for mine in dealt:
            pid = os.fork()
            if pid == 0:
                _child(users_of, mine, out, into)
            children.append(pid)
        yield lambda port: _tell(into, port, len(dealt))
    finally:
        gc.unfreeze()
        os.close(out)
        os.close(into)
        for pid in children:
            _reap(pid)


def _tell(into: int, port: int, times: int) -> None:
    os.write(into, b"%-16d" % port * times)


def _child(users_of: Callable[[range, int], object], mine: range, out: int, into: int) -> None:
    """Be the process of some users; never returns."""
    code = 1
    try:
        gc.disable()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server ends it
        os.close(into)
        port = os.read(out, 16)
        if port:
            asyncio.run(users_of(mine, int(port)))  # type: ignore[arg-type]
            code = 0
    except BaseException as problem:  # a child must never return into the parent's stack
        print(f"users {list(mine)}: {type(problem).__name__}: {problem}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def _reap(pid: int) -> None:
    """Wait for a process to end, and end it if it does not within two seconds."""
    for _ in range(200):
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
