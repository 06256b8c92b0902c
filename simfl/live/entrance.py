"""Unauthenticated connections: few are served at once, in turn by address.

A connection has a place from its TLS handshake to the end of its hello. It loses the place after `HELLO_S`,
and after `TURN_S` where another one waits. Waiting connections queue by address. The address with the fewest
places is next, and the one with the most gives up a place. So one address does not exclude another, and
within an address each connection has its turn (tests/live/test_entrance.py). Further connections wait in the
kernel's queue.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import time
from collections import Counter, deque
from contextlib import suppress

from simfl.live.connected_server import ConnectedServer
from simfl.live.peer import HELLO_S
from simfl.live.wire import Malformed

PLACES = 64
"""Unauthenticated connections that are served at once."""
SHARE = PLACES // 2
"""Maximum places of one address."""
TURN_S = 0.5
"""Seconds for which a connection is guaranteed its place."""
WAITING, WAITING_OF_ONE = 256, 128
"""Connections that may wait, in all and of one address."""


def network_of(host: str) -> str:
    """Return the address by which places are shared; of IPv6 the /64 network, which one machine may have.

    >>> network_of("192.0.2.1"), network_of("2001:db8::1:2")
    ('192.0.2.1', '2001:db8::/64')
    """
    # Without the zone of a link-local address, which names an interface of this machine.
    address = ipaddress.ip_address(host.partition("%")[0])
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else str(address)


class Entrance:
    """Accepts connections to a server."""

    def __init__(
        self, session: ConnectedServer, listening: socket.socket, context: ssl.SSLContext | None
    ) -> None:
        """Prepare to accept; without a context there is no TLS."""
        self.session, self.listening, self.context = session, listening, context
        self._waiting: dict[str, deque[socket.socket]] = {}
        self._served: dict[asyncio.Task[None], tuple[str, float]] = {}
        """(address, monotonic time of its begin) by connection, the oldest first."""
        self._changed = asyncio.Event()
        self._paused: asyncio.TimerHandle | None = None

    async def accept(self) -> None:
        """Accept connections until it is cancelled."""
        self._listen()
        try:
            await self._serve_in_turn()
        finally:
            # The socket stays open: a next protocol accepts on it.
            asyncio.get_running_loop().remove_reader(self.listening)
            if self._paused is not None:
                self._paused.cancel()
            for task in self._served:
                task.cancel()
            for queue in self._waiting.values():
                for end in queue:
                    # Waiting sockets have no task yet, so nothing else would close them.
                    end.close()

    def _listen(self) -> None:
        """Accept connections as they arrive.

        `loop.sock_accept` would leak a connection that arrives while it is cancelled.
        """
        self._paused = None
        asyncio.get_running_loop().add_reader(self.listening, self._take)

    def _pause(self, pause_s: float) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self.listening)
        self._paused = loop.call_later(pause_s, self._listen)

    def _take(self) -> None:
        """Let a connection wait for its place."""
        # Not accepted at all, so that they wait in the kernel's queue without a file of this process.
        if sum(map(len, self._waiting.values())) >= WAITING:
            self._pause(TURN_S / 10)
            return
        try:
            end, address = self.listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            # The peer closed the connection before it was accepted.
            return
        except OSError:
            # This process may not open more files. Without a pause, the loop would be called for the same
            # connection again and again.
            self._pause(TURN_S / 5)
            return
        end.setblocking(False)
        queue = self._waiting.setdefault(network_of(address[0]), deque())
        # One address cannot fill the queue in which all others would wait, too.
        if len(queue) >= WAITING_OF_ONE:
            self.session.count(f"more than {WAITING_OF_ONE} connections of one address wait")
            end.close()
            return
        queue.append(end)
        self._changed.set()

    async def _serve_in_turn(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            places = Counter(host for host, _ in self._served.values())
            host = min(self._waiting, key=lambda host: places[host], default=None)
            # No `await` stands between the decision above and this, so no change is missed.
            self._changed.clear()
            if host is None:
                await self._changed.wait()
            # The share keeps places for addresses that come later (test_entrance.py:
            # test_places_of_one_address_are_its_share).
            elif len(self._served) < PLACES and places[host] < SHARE:
                end = self._waiting[host].popleft()
                if not self._waiting[host]:
                    del self._waiting[host]
                task = loop.create_task(self._serve(end))
                self._served[task] = host, time.monotonic()
                task.add_done_callback(self._has_left)
            else:
                # The oldest connection of the largest address gives up its place once its turn is over.
                largest = max(places, key=lambda host: places[host])
                task, since_s = next((t, s) for t, (host, s) in self._served.items() if host == largest)
                left_s = since_s + TURN_S - time.monotonic()
                if left_s <= 0:
                    task.cancel()
                with suppress(TimeoutError):
                    # A connection that was cancelled leaves by itself, so then only a change is awaited.
                    async with asyncio.timeout(left_s if left_s > 0 else None):
                        await self._changed.wait()

    def _has_left(self, task: asyncio.Task[None]) -> None:
        del self._served[task]
        self._changed.set()

    async def _serve(self, end: socket.socket) -> None:
        """Hold a place until the hello is accepted, refused or late."""
        # asyncio accepts the timeout of a TLS handshake only with TLS.
        loop, within_s = asyncio.get_running_loop(), None if self.context is None else HELLO_S
        peer = None
        try:
            _, peer = await loop.connect_accepted_socket(
                self.session.connection, end, ssl=self.context, ssl_handshake_timeout=within_s
            )
            await peer.has_hello.wait()
        except OSError:
            # Errors and timeouts of TLS are OSErrors, too.
            self.session.count("no TLS 1.3 within a few seconds")
            end.close()
        except asyncio.CancelledError:
            reason = f"no hello within {TURN_S:g} s, and others waited"
            if peer is None:
                self.session.count(reason)
            elif not peer.is_closing:
                self.session.on_malformed(peer, Malformed(reason))
            raise


async def run(session: ConnectedServer, listening: socket.socket, context: ssl.SSLContext | None) -> None:
    """Accept connections to a server until its run is over."""
    accepting = asyncio.get_running_loop().create_task(Entrance(session, listening, context).accept())
    try:
        await session.run()
    finally:
        accepting.cancel()
        # `await accepting` would raise its CancelledError here. Its `finally` has closed the waiting sockets
        # after this.
        await asyncio.wait({accepting})
