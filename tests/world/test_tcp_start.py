"""SimGrid's LV08, by hand; the first two worlds are those of SimGrid's own documentation and tests."""

from __future__ import annotations

from typing import Any

import pytest

from simfl.engine.environment import Environment
from simfl.engine.network import VirtualNetwork
from simfl.trace.rows import Sent
from simfl.world.availability import FOR_EVER
from simfl.world.links import LinkState
from simfl.world.tcp_start import lv08
from tests.engine.harness import Carried, of, run

GBPS = 10**9


def arrival_s(rate_bps: int, latency_s: float, size_bytes: int, server_bps: int = 100 * GBPS) -> float:
    env, arrived = Environment(), list[int]()
    state = LinkState(rate_bps, rate_bps, latency_s, FOR_EVER)
    links, server = lv08(lambda user, now: state, lambda now: (server_bps, server_bps, FOR_EVER))
    VirtualNetwork(env, links, server).link(0, up=True).send(
        Carried(size_bytes, lambda: None, lambda: arrived.append(env.now), lambda moved: None)
    )
    env.run()
    return arrived[0] / GBPS


@pytest.mark.parametrize(
    ("rate_bps", "latency_s", "size_bytes", "expected_s"),
    [
        (10**6, 0.01, 100_000, 0.1301 + 0.8 / 0.97),  # 0.996079 in SimGrid, with 5 % of acknowledgements
        (GBPS, 0.01, 10**8, 0.1301 + 0.8 / 0.97),  # 970 Mbit/s: the window would allow 1,678
        (GBPS, 0.1, 10**8, 1.301 + 0.8 / 0.16777216),  # the window: 4 MiB each 0.2 s
        (GBPS, 0.0, 10**8, 0.8 / 0.97),
    ],
)
def test_a_free_link_is_as_calculated_by_hand(
    rate_bps: int, latency_s: float, size_bytes: int, expected_s: float
) -> None:
    assert arrival_s(rate_bps, latency_s, size_bytes) == pytest.approx(expected_s, abs=2e-9)


def test_the_servers_link_loses_headers_too() -> None:
    assert arrival_s(GBPS, 0.01, 10**8, server_bps=GBPS // 2) == pytest.approx(0.1301 + 1.6 / 0.97, abs=2e-9)


def test_nothing_moves_where_nothing_moved() -> None:
    links, server = lv08(lambda user, now: LinkState(0, 8, 0.02, 7), lambda now: (0, 100, 9))
    assert links(0, 0)[:2] == (0, 8)
    assert links(0, 0).until == 7
    assert server(0) == (0, 97, 9)


@pytest.mark.parametrize(
    ("changes", "latency_ns"), [({}, 10_000_000), ({"network.tcp_start": "lv08"}, 130_100_000)]
)
def test_lv08_applies_only_if_the_scenario_has_it(changes: dict[str, Any], latency_ns: int) -> None:
    (trace,) = run({**changes, "protocols": ["fedavg"]}).traces.values()
    upload = of(trace, Sent, sender=0, kind="upload")[0]
    bps = 8_000_000 if not changes else 7_760_000
    assert upload.arrived == upload.sent + round(8 * upload.size * GBPS / bps) + latency_ns
