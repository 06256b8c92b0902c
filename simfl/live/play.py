"""A live run on one machine: users in processes of their own, real sockets, real time.

The processes are forked when data, models and code are there and warm. A user's process answers for nothing
but its users: it trains, masks and waits as they would, and reports its rows at the end.
"""

import asyncio
import os
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from simfl.errors import BadInput
from simfl.learning.trainer import one_thread
from simfl.live import entrance
from simfl.live.connection import Sockets
from simfl.live.live_protocol import LiveProtocol, LiveStats, Played
from simfl.live.live_run import LiveRun, open_live_run
from simfl.live.processes import cores, exit_codes, forked
from simfl.live.real_time import run
from simfl.live.server import LiveServer
from simfl.runs.build import Experiment
from simfl.runs.folder.result import Result

WARN_OVERRUN = 0.02
WARN_HELD_S = 0.05
"""Above these, a run's figures are those of this machine."""


REAP_S = 2.0
"""Seconds that users' processes have to end after the run."""


def play(
    study: Experiment,
    out: Path | None = None,
    links: Literal["user", "none"] = "user",
    processes: int | None = None,
    tell: Callable[[str, LiveStats], None] = lambda name, stats: None,
    resume: bool = False,
    sockets: Sockets | None = None,
) -> tuple[Result, dict[str, LiveStats]]:
    """Play a scenario's protocols one after the other, in real time.

    Args:
        study: what `prepared` returned.
        out: a folder for the run's files; none are written unless given.
        links: shaped in user space, or not at all.
        processes: among which the users are dealt; one for each core unless given.
        tell: called after each protocol.
        resume: go on with the unfinished run in `out`: the protocols that were played to their end are kept.
        sockets: in place of this machine's loopback, as `links` says; with processes of one user each, which
            `Sockets.enter_user` takes to where it is.
    """
    users = study.scenario.population.users
    if processes is not None and not 1 <= processes <= users:
        raise BadInput(f"processes: {processes} must be from 1 to the number of users, {users}")
    processes = users if sockets is not None else processes or min(users, cores())
    sockets = sockets or Sockets(has_links=links == "user")
    dealt = [range(k, users, processes) for k in range(processes)]
    facts = {"links": links, "scheduler": scheduler(), "processes": processes}
    with open_live_run(study, out, resume, facts) as runs, one_thread(study.by_torch):
        for name in runs.todo:
            tell(name, runs.add(name, _one(study, name, sockets, dealt, runs)))
    return runs.result, runs.stats


def scheduler() -> str:
    """Return how this process is scheduled: in real time, if whoever started it said so."""
    real_time = os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR)
    return "real time" if real_time else "usual"


def _one(study: Experiment, name: str, sockets: Sockets, dealt: Sequence[range], runs: LiveRun) -> Played:
    protocol = LiveProtocol(study, name, sockets)
    protocol.warm()
    # For each process the server's port; the pipe's end shows that the process which forked them is gone.
    out, into = os.pipe()

    async def be(mine: Sequence[int]) -> bool:
        os.close(into)
        port = os.read(out, PORT_BYTES)
        if not port:
            return True
        with _watched(out):
            worker = await protocol.worker(mine)
            sockets.enter_user(mine[0])
            return await protocol.be_users(mine, (sockets.address, int(port)), worker)

    async def serve() -> LiveServer:
        server = protocol.server()
        runs.follow(name, server)
        with socket.create_server((sockets.address, 0), backlog=1024) as listening:
            listening.setblocking(False)
            _send_port(into, listening.getsockname()[1], len(dealt))
            await entrance.run(server.session, listening, None)
        return server

    began = time.monotonic()
    try:
        with forked(be, dealt) as pids, sockets.at_server():
            server = run(serve())
            exit_codes(pids, REAP_S)
    finally:
        os.close(out)
        os.close(into)
    return protocol.outcome(server, time.monotonic() - began)


PORT_BYTES = 16


def _send_port(into: int, port: int, times: int) -> None:
    os.write(into, b"%-*d" % (PORT_BYTES, port) * times)


@contextmanager
def _watched(out: int) -> Iterator[None]:
    """End this process once the one is gone that forked it, of which no link may say anything more."""
    ends = select.poll()
    ends.register(out, 0)  # hung up, once no process can write to it

    async def watch() -> None:
        while not ends.poll(0):
            await asyncio.sleep(1)
        os._exit(1)

    watching = asyncio.get_running_loop().create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
