"""A live run on one machine: users in processes of their own, real sockets, real time.

The processes are forked when data, models and code are there and warm. A user's process answers for nothing
but its users: it trains, masks and waits as they would, and reports its rows at the end.
"""

import asyncio
import gc
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from simfl.errors import BadInput
from simfl.learning.trainer import one_thread
from simfl.live import entrance
from simfl.live.kept import Kept, kept
from simfl.live.kernel_links import Delay, LinkKind, Place, opened
from simfl.live.real_time import run
from simfl.live.server import LiveServer
from simfl.live.sides import Figures, Played, Sides
from simfl.live.worker import cores
from simfl.runs.build import Experiment
from simfl.runs.folder.result import Result

WARN_OVERRUN = 0.02
WARN_HELD_S = 0.05
"""Above these, a run's figures are those of this machine."""


def play(
    study: Experiment,
    out: Path | None = None,
    links: LinkKind = "user",
    processes: int | None = None,
    tell: Callable[[str, Figures], None] = lambda name, figures: None,
    delay: Delay = "wire",
    resume: bool = False,
) -> tuple[Result, dict[str, Figures]]:
    """Play a scenario's protocols one after the other, in real time.

    Args:
        study: what `prepared` returned.
        out: a folder for the run's files; none are written unless given.
        links: shaped in user space, by the kernel, or not at all.
        processes: among which the users are dealt; one for each core unless given, and under kernel links
            one for each user.
        tell: called after each protocol.
        delay: the latency of kernel links: waited for in user space, or a wire's.
        resume: go on with the unfinished run in `out`: the protocols that were played to their end are kept.
    """
    s = study.scenario
    users = s.population.users
    if processes is not None and not 1 <= processes <= users:
        raise BadInput(f"processes: {processes} must be from 1 to the number of users, {users}")
    if links == "kernel" and processes not in (None, users):
        raise BadInput(f"processes: {processes}: under kernel links each user has a process of its own")
    processes = processes or (users if links == "kernel" else min(users, cores()))
    dealt = [range(k, users, processes) for k in range(processes)]
    facts = {
        "links": links,
        "delay": delay if links == "kernel" else "",
        "scheduler": scheduler(),
        "processes": processes,
    }
    with kept(study, out, resume, facts) as runs, one_thread(study.by_torch):
        with opened(study, links, delay) as place:
            for name in runs.todo:
                tell(name, runs.add(name, _one(study, name, place, dealt, runs)))
        runs.facts["wire"] = place.wire
    return runs.result, runs.figures


def scheduler() -> str:
    """Return how this process is scheduled: in real time, if whoever started it said so."""
    real_time = os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR)
    return "real time" if real_time else "usual"


def _one(study: Experiment, name: str, place: Place, dealt: Sequence[range], runs: Kept) -> Played:
    sides = Sides(study, name, place)
    sides.warm()

    async def users_of(mine: range, port: int) -> None:
        worker = await sides.worker(mine)
        place.enter(mine[0])
        await sides.be_users(mine, (place.address, port), worker)

    async def serve(tell_port: Callable[[int], None]) -> LiveServer:
        server = sides.server()
        runs.follow(name, server)
        with socket.create_server((place.address, 0), backlog=1024) as listening:
            listening.setblocking(False)
            tell_port(listening.getsockname()[1])
            await entrance.run(server.door, listening, None)
        return server

    began = time.monotonic()
    with _forked(users_of, dealt) as tell_port, place.at_server():
        server = run(serve(tell_port))
    return sides.outcome(server, time.monotonic() - began)


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
    except BaseException:  # nobody asks them for a report any more
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        raise
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
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.close(into)
        port = os.read(out, 16)
        if port:
            run(_beside(users_of(mine, int(port)), out))  # type: ignore[arg-type]
            code = 0
    except BaseException as problem:  # a child must never return into the parent's stack
        print(f"users {list(mine)}: {type(problem).__name__}: {problem}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


async def _beside(users: Awaitable[None], out: int) -> None:
    """Be the users as long as the process is there that forked them, of which no link may tell any more."""
    ends = select.poll()
    ends.register(out, 0)  # hung up, once nobody can write to it

    async def watch() -> None:
        while not ends.poll(0):
            await asyncio.sleep(1)
        os._exit(1)

    watching = asyncio.get_running_loop().create_task(watch())
    await users
    watching.cancel()


def _reap(pid: int) -> None:
    """Wait for a process to end, and end it if it does not within two seconds."""
    for _ in range(200):
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
