"""A live run on one machine: users in separate processes, real sockets, real time.

The processes are forked once data and models are loaded and code is warm. A user's process trains, masks and
waits as its users would, and reports its rows at the end; it has no other task.
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
from simfl.live.connection import Sockets
from simfl.live.live_protocol import LiveOutcome, LiveProtocol, LiveStats
from simfl.live.live_run import LiveRun, open_live_run
from simfl.live.processes import cores, exit_codes, forked
from simfl.live.real_time import run
from simfl.live.server import LiveServer
from simfl.runs.build import Experiment
from simfl.runs.callbacks import Tracker, TrackerFeed
from simfl.runs.folder.result import Result

WARN_OVERRUN, WARN_HELD_S = 0.02, 0.05
"""Overrun and longest step beyond which a run's figures depend on this machine."""
REAP_S = 2.0
"""Time within which users' processes have to end after the run."""
PORT_BYTES = 16
"""Length of the server's port in the pipe to a process."""


def run_live(
    experiment: Experiment,
    out: Path | None = None,
    links: Literal["user", "none"] = "user",
    processes: int | None = None,
    on_protocol: Callable[[str, LiveStats], None] = lambda name, stats: None,
    resume: bool = False,
    sockets: Sockets | None = None,
    callbacks: Sequence[Tracker] = (),
) -> tuple[Result, dict[str, LiveStats]]:
    """Run a scenario's protocols one after the other, in real time.

    Args:
        experiment: The result of `prepared`.
        out: Folder for the run's files; none are written unless given.
        links: Shaped in user space, or not at all.
        processes: Number of processes that share the users; one for each core unless given.
        on_protocol: Called after each protocol.
        resume: Continue the unfinished run in `out`, whose complete protocols are not repeated.
        sockets: Place of the sockets, instead of this machine's loopback. Each process then has one user,
            and enters that user's network namespace.
        callbacks: Receive the rounds of a protocol when it is over, as users report then.

    Returns:
        The result, and the stats of each protocol.

    Raises:
        BadInput: An argument is impossible.
        ScenarioError: The server's link has a queue, and processes would have to shape it.
    """
    users = experiment.scenario.population.users
    if processes is not None and not 1 <= processes <= users:
        raise BadInput(f"processes: must be from 1 to the number of users, {users}, not {processes}")
    # A process is in one network namespace, so each user needs a process.
    processes = users if sockets is not None else processes or min(users, cores())
    sockets = sockets or Sockets(has_links=links == "user")
    sockets.check_queue(experiment.scenario)
    # In turns, so that parts differ by one user at most.
    parts = [range(k, users, processes) for k in range(processes)]
    facts = {"links": links, "scheduler": scheduler(), "processes": processes}
    feed = TrackerFeed(callbacks)
    with (
        open_live_run(experiment, out, resume, facts) as runs,
        one_thread(experiment.by_torch),
        feed.of(experiment.scenario, runs.result.summarised),
    ):
        for name in runs.todo:
            on_protocol(name, runs.add(name, _run_protocol(experiment, name, sockets, parts, runs)))
            feed.send(name, runs.result.traces[name], runs.result.measured[name], last=True)
    return runs.result, runs.stats


def scheduler() -> str:
    """Return the scheduling of this process: in real time, if it was started with that priority."""
    real_time = os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR)
    return "real time" if real_time else "usual"


def _run_protocol(
    experiment: Experiment, name: str, sockets: Sockets, parts: Sequence[range], runs: LiveRun
) -> LiveOutcome:
    protocol = LiveProtocol(experiment, name, sockets)
    protocol.warm()
    # The pipe carries the server's port to each process; its end shows that their parent has ended.
    out, into = os.pipe()

    async def run_users(numbers: Sequence[int]) -> bool:
        # So that the pipe ends with the parent: a copy in a child would keep it open.
        os.close(into)
        port = os.read(out, PORT_BYTES)
        # The parent has ended before it served.
        if not port:
            return True
        with _watched(out):
            worker = await protocol.worker(numbers)
            sockets.enter_user(numbers[0])
            return await protocol.run_users(numbers, (sockets.address, int(port)), worker)

    async def serve() -> LiveServer:
        # Any free port. All users may connect at once, so the backlog is long.
        with socket.create_server((sockets.address, 0), backlog=1024) as listening:
            listening.setblocking(False)
            _send_port(into, listening.getsockname()[1], len(parts))
            return await runs.serve(protocol, listening, None)

    began = time.monotonic()
    try:
        with forked(run_users, parts) as pids, sockets.at_server():
            server = run(serve())
            # Users have reported by now. Processes that do not end are killed by `forked`.
            exit_codes(pids, REAP_S)
    finally:
        os.close(out)
        os.close(into)
    return protocol.outcome(server, time.monotonic() - began)


def _send_port(into: int, port: int, times: int) -> None:
    # A number of fixed length for each process: each reads its own, and leaves the others.
    os.write(into, b"%-*d" % (PORT_BYTES, port) * times)


@contextmanager
def _watched(out: int) -> Iterator[None]:
    """End this process once its parent has ended; over a slow link, the connection's end may arrive late."""
    poll = select.poll()
    # Without any event: only the hang-up is reported, once no process can write to the pipe.
    poll.register(out, 0)

    async def watch() -> None:
        while not poll.poll(0):
            await asyncio.sleep(1)
        os._exit(1)

    watching = asyncio.get_running_loop().create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
