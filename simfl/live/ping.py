"""The overhead, latency and rates of a link, by pings: the values for a scenario's `network`.

A round trip of n characters one way takes 2 latencies and 8 n / rate. The rate is the slope of a line through
the medians by size. Of a trip without content, the CPU time is overhead, and half of the remainder is
latency. Connections are busy and TCP's window is open, so the additional time of a new or idle connection is
not included.

The queue is what a round trip takes longer while another connection of the user loads its uplink, and its
downlink: the larger of the two, in seconds. Only a full queue has its whole length, so the load lasts
`LOADED_S`; a queue that drops packets early, or shares by flow, is shorter by this measure, as for a message.
"""

import asyncio
import os
import time
from dataclasses import dataclass

import numpy as np

from simfl.live.connection import Sockets
from simfl.live.control import Ping, Pong
from simfl.live.entrance import Entrance
from simfl.live.hello import Admission
from simfl.live.live_protocol import LiveProtocol
from simfl.live.observer import Observer
from simfl.live.processes import forked
from simfl.live.real_time import run
from simfl.live.serve import Listening, listening
from simfl.live.tls import Address
from simfl.runs.build import Experiment
from simfl.runs.folder.identity import code_version

SIZES = (0, 4_000, 16_000, 64_000, 256_000)
"""Characters of a ping, or of its answer."""
SMALL = 40
"""Pings without content, for latency and overhead."""
REPEAT = 7
"""Pings of each other size and way."""
LOADED_S, LOAD = 2.0, 256_000
"""Seconds for which a link is loaded, and characters of each of the load's pings."""
LOADS = 4, 100
"""Least and most pings of a load: both loads stay below what an observer may send."""
LOADED_TRIPS, PAUSE_S = 300, 0.01
"""Most round trips beside a load, as an observer's pings are limited, and the pause between two."""
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class LinkMeasurement:
    """A link as it was measured from a user's side."""

    overhead_s: float
    """CPU time of one received message."""
    latency_s: float
    """One way."""
    uplink_mbps: float
    """Of the user's uplink."""
    downlink_mbps: float
    """Of the user's downlink."""
    idle_s: float = 0.0
    """Median round trip without load."""
    loaded_s: tuple[float, float] = (0.0, 0.0)
    """Median round trip while the uplink is loaded, and while the downlink is."""

    @property
    def queue_s(self) -> float:
        """The longer delay by a queue in the two directions."""
        return max(0.0, max(self.loaded_s) - self.idle_s)

    def block(self) -> str:
        """Return a scenario's `network` with this link, without exponents: YAML reads 8e-05 as text."""
        return (
            "network:\n"
            "  users:\n"
            f"    uplink_mbps: {self.uplink_mbps:.3f}\n"
            f"    downlink_mbps: {self.downlink_mbps:.3f}\n"
            f"    latency_s: {self.latency_s:.6f}\n"
            f"    # round trips: {self.idle_s:.4f} s idle, {self.loaded_s[0]:.4f} s with a loaded uplink,\n"
            f"    # {self.loaded_s[1]:.4f} s with a loaded downlink\n"
            f"    queue_s: {self.queue_s:.6f}\n"
            f"  overhead_s: {self.overhead_s:.6f}\n"
        )


def ping(address: Address, admission: Admission, user: int, wait_s: float = 0) -> LinkMeasurement:
    """Measure the link to a server, which may take `wait_s` to start.

    Raises:
        BadInput: The server refuses the user, or does not answer.
    """

    async def measured() -> LinkMeasurement:
        observers = [await Observer.connect(address, admission, user, wait_s) for _ in range(2)]
        try:
            return await measure(*observers)
        finally:
            for observer in observers:
                observer.close()

    return run(measured())


async def measure(observer: Observer, loading: Observer) -> LinkMeasurement:
    """Measure the link of an observer's connection; a second connection of it makes the load."""

    async def trip(up: int, down: int) -> float:
        began = time.monotonic_ns()
        observer.send_control(Ping(began, down, "." * up))
        await observer.expect(Pong)
        return (time.monotonic_ns() - began) / 1e9

    async def loaded(up: int, down: int, mbps: float) -> float:
        count = min(LOADS[1], max(LOADS[0], int(LOADED_S * mbps * 1e6 / 8 / LOAD)))

        async def load() -> None:
            for _ in range(count):
                loading.send_control(Ping(0, LOAD * down, "." * (LOAD * up)))
            for _ in range(count):
                await loading.expect(Pong)

        # The answers are read beside the pings: without a reader, the downlink would stand still.
        work = asyncio.ensure_future(load())
        trips: list[float] = []
        try:
            while not work.done() and len(trips) < LOADED_TRIPS:
                trips.append(await trip(0, 0))
                await asyncio.sleep(PAUSE_S)
            await work
        finally:
            work.cancel()
        # The queue fills at first, and is empty at last: the median is of the time between.
        return float(np.median(trips))

    # Opens TCP's windows, and warms up code.
    for size in SIZES:
        await trip(size, size)
    # CPU time: waiting for the answer is latency, and no overhead.
    used = time.process_time()
    small = [await trip(0, 0) for _ in range(SMALL)]
    # Each of the two messages has a sender and a receiver.
    overhead_s = (time.process_time() - used) / SMALL / 2
    small_s = float(np.median(small))
    rates = []
    for up, down in ((1, 0), (0, 1)):
        medians = [small_s]
        for n in SIZES[1:]:
            # Medians, as single trips may wait for other processes.
            medians.append(float(np.median([await trip(n * up, n * down) for _ in range(REPEAT)])))
        # By noise, a fast link may show no slope or a negative one; the rate is bounded then.
        slope = max(1e-12, float(np.polyfit(SIZES, medians, 1)[0]))
        # A character is a byte: the content is ASCII.
        rates.append(8 / slope / 1e6)
    loads = await loaded(1, 0, rates[0]), await loaded(0, 1, rates[1])
    latency_s = max(0.0, small_s / 2 - overhead_s)
    return LinkMeasurement(overhead_s, latency_s, rates[0], rates[1], small_s, loads)


def loopback(experiment: Experiment) -> LinkMeasurement:
    """Measure this machine's loopback, between two processes as in a live run."""
    name = next(iter(experiment.scenario.protocols))
    admission = Admission({0: os.urandom(16).hex()}, code=code_version())
    # Without shaped links, or the scenario's rates would be measured.
    protocol = LiveProtocol(experiment, name, Sockets(has_links=False), admission)
    at = listening((LOOPBACK, 0), None, "", admission.tokens)
    try:
        with forked(lambda users: _answering(protocol, at), [[0]]):
            return ping(at.address, admission, 0)
    finally:
        at.socket.close()


async def _answering(protocol: LiveProtocol, at: Listening) -> bool:
    await Entrance(protocol.server().session, at.socket, at.context).accept()
    return True
