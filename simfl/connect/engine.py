"""The port to an engine that runs functions on workers elsewhere, and what all engines share."""

import logging
import threading
import time
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from simfl.errors import BadInput

ANSWERS_S = 10  # or a cluster is taken to be absent
NO_WORKER_S = 20  # before it is told of: one that is restarted is back by then
LOOK_EVERY_S = 1.0
TRIES = 3

log = logging.getLogger(__name__)  # Python prints a warning to stderr where nobody set up anything else


class Engine(Protocol):
    """A connection to workers. head: the part without which nothing goes on, as messages name it."""

    head: str

    def workers(self) -> int:
        """Return the workers that are there now."""

    def ask(self, function: Any, *args: Any) -> dict[str, Any]:
        """Return the answers of all workers, or of one on each machine, by address; an error is an answer."""

    def hold(self, weights: Any) -> Any:
        """Send weights to the cluster; return what stands for them among the arguments of calls."""

    def submit(self, function: Any, *args: Any, done: Callable[[Any], None]) -> None:
        """Let a worker call a function, up to `TRIES` times if it fails or takes the worker with it.

        done: called in another thread, with the result or an error; ClusterFailed where the work is not at
        fault."""


def gone(head: str) -> str:
    return f"{head} went away"


@contextmanager
def reachable(option: str, address: str | None) -> Iterator[None]:
    """Raise BadInput, with the first line of the reason, if a cluster cannot be used."""
    try:
        yield
    except (OSError, TimeoutError, ValueError, RuntimeError) as error:
        where = "a cluster on this machine" if address is None else address
        raise BadInput(f"{option}: {where} cannot be used: {str(error).splitlines()[0]}") from None


@contextmanager
def telling_without_workers(option: str, head: str, workers: Callable[[], int]) -> Iterator[None]:
    """Log a message whenever no worker has been there for a while. Requests wait for one: where workers
    are jobs in a queue, hours may pass until then."""
    over = threading.Event()

    def look() -> None:
        seen_s, told = time.monotonic(), False
        # A head that goes away ends the run, which says so.
        with suppress(Exception, CancelledError):
            while not over.wait(LOOK_EVERY_S):
                if workers():
                    seen_s, told = time.monotonic(), False
                elif not told and time.monotonic() - seen_s >= NO_WORKER_S:
                    waits = f"{head} has had no worker for {NO_WORKER_S} s"
                    log.warning("simfl: %s: %s: waiting for one to join; Ctrl-C ends it", option, waits)
                    told = True

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join(LOOK_EVERY_S)  # while the client is still open
