"""A wire with a delay: a process between two TUN devices, so that TCP itself sees the round trip.

Packets from one device go into the other, a user's latency later; their addresses say which user's. It
neither shapes nor drops anything. It is for kernels without netem, and works wherever there is TUN.
"""

import fcntl
import json
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from heapq import heappop, heappush

from simfl.errors import BadInput
from simfl.virtual_time import NS

TUN = "/dev/net/tun"
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x1, 0x1000
PACKET = 2048
LOOKS_S = 0.5
"""So often the process looks whether the run is still there."""
FIELDS = ((12, 16), (16, 20))
"""Bytes of the address of the user in a packet: from the users its source, to them its destination."""


def tun(name: str) -> int:
    """Make a TUN device in the namespace of this thread; return the file of what goes through it."""
    try:
        fd = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    except OSError as problem:
        raise BadInput(f"delay wire: {TUN}: {problem.strerror}: use delay user") from None
    return fd


@contextmanager
def carried(users_end: int, server_end: int, delays_ns: Mapping[str, int]) -> Iterator[None]:
    """Let a process carry packets between two devices, and print how many they were and how late at the end.

    Args:
        users_end, server_end: the devices' files.
        delays_ns: by the address of a user.
    """
    told, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(told)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run ends it
            signal.signal(signal.SIGTERM, _end)
            policy = os.sched_getscheduler(0)
            if policy in (os.SCHED_FIFO, os.SCHED_RR):  # before those whose packets it carries
                os.sched_setscheduler(0, policy, os.sched_param(os.sched_getparam(0).sched_priority + 1))
            os.write(into, json.dumps(_carry((users_end, server_end), delays_ns)).encode())
        finally:
            os._exit(0)
    os.close(into)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGTERM)
        print(f"wire: {os.read(told, PACKET).decode()}")
        os.waitpid(pid, 0)
        os.close(told)


def _carry(ends: tuple[int, int], delays_ns: Mapping[str, int]) -> dict[str, float]:
    """Carry packets until SIGTERM, or until whoever started it is gone."""
    parent = os.getppid()
    delays = {socket.inet_aton(address): delay for address, delay in delays_ns.items()}
    heap: list[tuple[int, int, int, bytes]] = []
    count = late_ns = latest_ns = 0
    with suppress(InterruptedError):
        while os.getppid() == parent:
            wait_s = max(0.0, (heap[0][0] - time.monotonic_ns()) / NS) if heap else LOOKS_S
            ready, _, _ = select.select(ends, (), (), min(LOOKS_S, wait_s))
            for way in map(ends.index, ready):
                first, last = FIELDS[way]
                with suppress(BlockingIOError):  # nothing is left
                    for _ in range(64):
                        packet = os.read(ends[way], PACKET)
                        delay = delays.get(packet[first:last])
                        if delay is not None:  # of nobody else, such as what the devices say of themselves
                            count += 1
                            heappush(heap, (time.monotonic_ns() + delay, count, 1 - way, packet))
            now = time.monotonic_ns()
            while heap and heap[0][0] <= now:
                due, _, way, packet = heappop(heap)
                os.write(ends[way], packet)
                late_ns += now - due
                latest_ns = max(latest_ns, now - due)
    return {"packets": count, "late_ms": late_ns / max(1, count) / 1e6, "latest_ms": latest_ns / 1e6}


def _end(*_: object) -> None:
    raise InterruptedError
