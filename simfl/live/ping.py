"""The overhead, latency and rates of a link, by pings: the values for a scenario's `network`.

A round trip of n characters one way takes 2 latencies and 8 n / rate. The rate is the slope of a line through
the medians by size. Of a trip without content, the CPU time is overhead, and half of the remainder is
latency. Connections are busy and TCP's window is open, so the additional time of a new or idle connection is
not included.
"""

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

    def block(self) -> str:
        """Return a scenario's `network` with this link, without exponents: YAML reads 8e-05 as text."""
        return (
            "network:\n"
            "  users:\n"
            f"    uplink_mbps: {self.uplink_mbps:.3f}\n"
            f"    downlink_mbps: {self.downlink_mbps:.3f}\n"
            f"    latency_s: {self.latency_s:.6f}\n"
            f"  overhead_s: {self.overhead_s:.6f}\n"
        )


def ping(address: Address, admission: Admission, user: int, wait_s: float = 0) -> LinkMeasurement:
    """Measure the link to a server, which may take `wait_s` to start.

    Raises:
        BadInput: The server refuses the user, or does not answer.
    """

    async def measured() -> LinkMeasurement:
        observer = await Observer.connect(address, admission, user, wait_s)
        try:
            return await measure(observer)
        finally:
            observer.close()

    return run(measured())


async def measure(observer: Observer) -> LinkMeasurement:
    """Measure the link of an observer's connection."""

    async def trip(up: int, down: int) -> float:
        began = time.monotonic_ns()
        observer.send_control(Ping(began, down, "." * up))
        await observer.expect(Pong)
        return (time.monotonic_ns() - began) / 1e9

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
    return LinkMeasurement(overhead_s, max(0.0, small_s / 2 - overhead_s), rates[0], rates[1])


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
