"""Links by this machine's kernel: a network namespace for each user, one for the server, a hub between them.

Each end of each pair of devices has a token bucket (tbf): users' uplinks and downlinks, and the server's own
link. So packets, TCP's windows and headers are real, and the simulator's links are tested.
Packets are as on a wire: segments of 64 kB that a bucket has no room for would be lost as a whole, again
and again. The congestion control is cubic, as most hosts have it, whatever this machine's own is.

The latency is either waited for by the receiver (`user`: TCP sees hardly any round trip), or is one of a wire
between server and hub (`wire`: TCP sees it).
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Literal, NamedTuple

from benchmarks.delay_wire import carried, tun
from benchmarks.namespaces import Namespaces
from simfl.errors import ScenarioError
from simfl.live.connection import Sockets
from simfl.runs.build import Experiment
from simfl.scenario.messages import problem
from simfl.scenario.user_classes import key_of, settings_of
from simfl.virtual_time import nanoseconds
from simfl.world.link_models import Steady
from simfl.world.tcp import Tcp

Delay = Literal["user", "wire"]
"""Where the latency is: messages wait for it, or packets do."""

HUB, SERVER = "hub", "server"
SERVER_IP, HUB_IP = "10.78.0.1", "10.78.0.2"
FRAME, PAYLOAD = 1514, 1448
"""Bytes of a full segment as the kernel counts them, with headers, and of the message in it."""
USER_QUEUE_S, SERVER_QUEUE_S = 1.0, 0.25
"""Seconds of a link's rate that its queue holds at most. At users much, whose links have one connection each,
so that no packet is lost there. An uplink's holds little of it: Linux gives a device hardly more of a
connection than it sends in a millisecond ("TCP small queues", net/ipv4/tcp_output.c). At the server's it is
the old rule for routers (Appenzeller, Keslassy, McKeown, "Sizing router buffers", 2004), unless the scenario
has `network.server.queue_s`."""
BURST_S = 0.0005
LEAST_BURST, LEAST_QUEUE = 1_600, 30_000
"""Bytes: a packet, and twenty of them."""


@contextmanager
def opened(study: Experiment, delay: Delay) -> Iterator[Sockets]:
    """Open the namespaces where a scenario is played, each user in a process of its own.

    Raises:
        BadInput: Rights or tools are missing.
        ScenarioError: The scenario has links that the kernel does not play.
    """
    if found := [problem(study.scenario, key, why) for key, why in problems(study, delay)]:
        raise ScenarioError(found)
    people, users = study.people, range(study.scenario.population.users)
    net = Namespaces([HUB, SERVER, *map(_part, users)])
    with ExitStack() as stack:
        stack.enter_context(net.made())
        if delay == "wire":
            users_end, server_end = _tun(net, HUB), _tun(net, SERVER)
            stack.callback(os.close, users_end)
            stack.callback(os.close, server_end)
            delays_ns = {_ip(user): nanoseconds(people.latency_s.item(user)) for user in users}
            stack.enter_context(carried(users_end, server_end, delays_ns))
        _configure(net, study, delay)
        yield Sockets(
            shapes_rates=False,
            adds_latency=delay == "user",
            address=SERVER_IP,
            at_server=lambda: net.inside(SERVER),
            enter_user=lambda user: net.enter(_part(user)),
        )


def problems(study: Experiment, delay: Delay) -> Iterator[tuple[str, str]]:
    """Yield each key of a scenario whose links the kernel does not play, with the reason."""
    s = study.scenario
    steady = "links by the kernel keep their rates"
    if s.network.outages:
        yield "network.outages", steady
    if not isinstance(s.network.server.varies, Steady):
        yield "network.server.varies", steady
    for name, own in settings_of(s).items():
        key = key_of(s, name, "network")
        if not isinstance(own.network.varies, Steady):
            yield f"{key}.varies", steady
        if own.network.queue_s:
            yield f"{key}.queue_s", "a user's own queue is that of this kernel: leave it out"
        if own.network.jitter_s is not None and delay == "wire":
            yield f"{key}.jitter_s", "the wire's delay does not vary: use delay user"


def _configure(net: Namespaces, study: Experiment, delay: Delay) -> None:
    """Make the devices that are not there, with addresses, buckets and routes."""
    s, people = study.scenario, study.people
    users = range(s.population.users)
    pairs = {_part(user): f"u{user}" for user in users} | ({SERVER: "server"} if delay == "user" else {})
    net.ip(
        HUB,
        (f"link add {near} type veth peer name e0 netns {net.names[part]}" for part, near in pairs.items()),
    )
    headers = {user: _headers(people.tcp(user)) for user in users}
    # A TUN device has packets without the 14 bytes of Ethernet.
    own = max(headers.values()) * (1 if delay == "user" else (FRAME - 14) / FRAME)
    near, far = ("server", "e0") if delay == "user" else ("tun", "tun")
    up, down = (own * 1e6 * mbps for mbps in (s.network.server.uplink_mbps, s.network.server.downlink_mbps))
    queue_s = s.network.server.queue_s or SERVER_QUEUE_S
    hub = [_End(near, f"{HUB_IP}/30", down, queue_s)]
    _end(net, SERVER, [_End(far, f"{SERVER_IP}/30", up, queue_s)], HUB_IP)
    for user in users:
        up, down = (headers[user] * rate.item(user) * 1e6 for rate in (people.up_mbps, people.down_mbps))
        hub.append(_End(f"u{user}", f"{_ip(user, 2)}/30", down, USER_QUEUE_S))
        _end(net, _part(user), [_End("e0", f"{_ip(user)}/30", up, USER_QUEUE_S)], _ip(user, 2))
    _end(net, HUB, hub)
    net.set(HUB, ip_forward=1)


class _End(NamedTuple):
    """A device, and the bucket of what leaves by it."""

    device: str
    address: str
    rate_bps: float
    queue_s: float


def _end(net: Namespaces, part: str, ends: Iterable[_End], via: str = "") -> None:
    ends = list(ends)
    lines = ["link set lo up"]
    for end in ends:
        lines += [
            f"address add {end.address} dev {end.device}",
            f"link set {end.device} mtu 1500 gso_max_size 3000 gso_max_segs 2 txqueuelen 5000 up",
        ]
    if via:
        lines.append(f"route add default via {via} congctl cubic")
        net.set(part, tcp_no_metrics_save=1)  # no connection knows of an earlier one
    net.ip(part, lines)
    net.tc(
        part,
        (
            f"qdisc replace dev {end.device} root tbf rate {round(end.rate_bps)}bit"
            f" burst {max(LEAST_BURST, round(end.rate_bps / 8 * BURST_S))}"
            f" limit {max(LEAST_QUEUE, round(end.rate_bps / 8 * end.queue_s))}"
            for end in ends
        ),
    )


def _tun(net: Namespaces, part: str) -> int:
    with net.inside(part):
        return tun("tun")


def _headers(tcp: Tcp | None) -> float:
    """Return the rate with headers over the rate that a scenario states, which has them only under `tcp`."""
    return FRAME / (PAYLOAD if tcp is None else tcp.wire_bytes(PAYLOAD))


def _part(user: int) -> str:
    return f"u{user}"


def _ip(user: int, end: int = 1) -> str:
    """Return the address of a user's end of its link, or with 2 of the hub's.

    >>> _ip(0), _ip(64, 2)
    ('10.77.0.1', '10.77.1.2')
    """
    return f"10.77.{user // 64}.{user % 64 * 4 + end}"
