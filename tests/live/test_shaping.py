"""Links shaped in ticks, held to the fluid: here in virtual time."""

from __future__ import annotations

import pytest

from simfl.engine.environment import Environment
from simfl.live.shaping import TICK_NS, ShapedFlow, ShapedLink
from simfl.virtual_time import NS

MEGA = 1e6


def passed(
    rate: float, caps: list[float], sizes: list[int], until_s: float = 1e3
) -> tuple[dict[int, int], list[bytes]]:
    env, ends = Environment(), dict[int, int]()
    link, out = ShapedLink(env, lambda now: rate), [bytearray() for _ in caps]
    for k, (cap, size) in enumerate(zip(caps, sizes, strict=True)):
        flow = ShapedFlow(link, lambda now, cap=cap: cap, out[k].extend)  # type: ignore[misc]
        data = bytes(i % 251 for i in range(size))
        env.call_at(0, lambda flow=flow, data=data, k=k: flow.put(data, lambda: ends.setdefault(k, env.now)))  # type: ignore[misc]
    while env.peek() < until_s * NS:
        env.step()
    return ends, [bytes(data) for data in out]


def test_a_flow_has_the_duration_of_its_cap() -> None:
    ends, out = passed(100 * MEGA, [8 * MEGA], [1_000_000])
    assert ends[0] == pytest.approx(NS, abs=TICK_NS)
    assert out[0] == bytes(i % 251 for i in range(1_000_000))


def test_flows_share_a_link_fairly() -> None:
    """10 Mbit/s for caps of 2, 20 and 20: shares of 2, 4 and 4."""
    ends, _ = passed(10 * MEGA, [2 * MEGA, 20 * MEGA, 20 * MEGA], [250_000, 500_000, 500_000])
    assert all(end == pytest.approx(NS, abs=2 * TICK_NS) for end in ends.values())


def test_a_flow_uses_the_share_that_another_leaves() -> None:
    ends, _ = passed(8 * MEGA, [100 * MEGA] * 2, [250_000, 750_000])
    assert [ends[0], ends[1]] == pytest.approx([NS / 2, NS], abs=2 * TICK_NS)


def test_a_message_ends_to_the_byte_before_one_behind_it() -> None:
    """1 kB at 8 Mbit/s takes 1 ms, less than a tick, with 1 MB behind it."""
    env, ends = Environment(), list[int]()
    flow = ShapedFlow(ShapedLink(env, lambda now: 8 * MEGA), lambda now: 8 * MEGA, len)
    env.call_at(0, lambda: flow.put(bytes(1000), lambda: ends.append(env.now)))
    env.call_at(0, lambda: flow.put(bytes(1_000_000), lambda: ends.append(env.now)))
    while env.peek() < float("inf"):
        env.step()
    assert ends == pytest.approx([NS // 1000, NS * 1001 // 1000], abs=10)


def test_a_link_without_rate_carries_nothing() -> None:
    ends, out = passed(8 * MEGA, [0.0, 8 * MEGA], [10, 10], until_s=1)
    assert list(ends) == [1]
    assert out[0] == b""


def test_an_open_link_carries_at_once() -> None:
    ends, _ = passed(float("inf"), [float("inf")] * 2, [10**6, 10])
    assert ends == {0: 0, 1: 0}


def test_a_cut_flow_drops_its_bytes_and_carries_later_ones() -> None:
    env, out, ends = Environment(), bytearray(), list[str]()
    flow = ShapedFlow(ShapedLink(env, lambda now: 8 * MEGA), lambda now: 8 * MEGA, out.extend)
    env.call_at(0, lambda: flow.put(bytes(1_000_000), lambda: ends.append("never")))
    env.call_at(NS // 2, flow.cut)
    env.call_at(NS, lambda: flow.put(bytes(1000), lambda: ends.append("passed")))
    while env.peek() < float("inf"):
        env.step()
    assert ends == ["passed"]
    assert len(out) == pytest.approx(501_000, abs=8 * TICK_NS / 1000)


def test_a_cut_flow_carries_what_stands_in_its_queue() -> None:
    """At 1 byte a microsecond, with 10 ms of queue: after 20 ms 30,000 bytes have left of two messages."""
    env, out, ends = Environment(), bytearray(), list[str]()
    rate = 8 * MEGA
    flow = ShapedFlow(ShapedLink(env, lambda now: rate), lambda now: rate, out.extend, 10_000_000)
    env.call_at(0, lambda: flow.put(bytes(25_000), lambda: ends.append("whole")))
    env.call_at(0, lambda: flow.put(bytes(25_000), lambda: ends.append("part")))
    env.call_at(20_000_000, flow.cut)
    while env.peek() < float("inf"):
        env.step()
    assert ends == ["whole"]
    assert len(out) == pytest.approx(30_000, abs=TICK_NS / 1000)


def test_a_flow_that_is_flushed_passes_at_once_and_in_order() -> None:
    env, out, ends = Environment(), bytearray(), list[int]()
    flow = ShapedFlow(ShapedLink(env, lambda now: 8 * MEGA), lambda now: 8 * MEGA, out.extend)
    flow.put(b"a" * 10_000, lambda: ends.append(env.now))
    flow.put(b"b" * 10_000, lambda: ends.append(env.now))
    while not out:
        env.step()
    assert len(out) < 10_000
    flow.flush()
    assert out == b"a" * 10_000 + b"b" * 10_000
    assert ends == []
    assert flow.left == 0
