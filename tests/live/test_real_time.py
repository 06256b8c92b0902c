"""The clock of live runs: when it begins, and how fine its timers are."""

from __future__ import annotations

import asyncio
import sys
import time

import pytest

from simfl.live.real_time import SWITCH_S, RealTime, run
from simfl.virtual_time import NS


def test_calls_at_0_wait_for_the_beginning() -> None:
    """The run begins 0.1 s after it is said when; meanwhile something comes from outside."""

    async def begins() -> tuple[int, list[int], list[int]]:
        env, outside, due = RealTime(), list[int](), list[int]()
        ended = asyncio.Event()
        env.call_at(0, lambda: due.append(time.monotonic_ns()))
        env.call_at(NS // 1000, ended.set)
        origin = time.monotonic_ns() + NS // 10
        env.start(origin)
        env.call_external(lambda: outside.append(env.now))
        await asyncio.wait_for(ended.wait(), 20)
        return origin, outside, due

    origin, outside, due = run(begins())
    assert outside == [0]
    assert len(due) == 1
    assert due[0] >= origin


def test_timers_are_finer_than_a_millisecond() -> None:
    """The best of 300 waits for 0.2 ms, so that other work of the machine does not count."""

    async def waits() -> float:
        took_s = []
        for _ in range(300):
            began = time.perf_counter()
            await asyncio.sleep(0.0002)
            took_s.append(time.perf_counter() - began)
        return min(took_s)

    assert 0.0002 <= run(waits()) < 0.0009


def test_a_run_leaves_the_interpreter_as_it_was() -> None:
    async def during() -> float:
        return sys.getswitchinterval()

    before = sys.getswitchinterval()
    assert run(during()) == pytest.approx(SWITCH_S)
    assert sys.getswitchinterval() == before != SWITCH_S
