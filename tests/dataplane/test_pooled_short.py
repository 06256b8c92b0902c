"""Small operations of a pool: done in line, once, and failing as long ones do."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from simfl.crypto import keys
from simfl.dataplane import pooled
from simfl.dataplane.eager import EagerOps
from simfl.dataplane.handles import U32
from simfl.dataplane.pooled import PooledOps
from simfl.errors import DataPlaneError
from tests.dataplane.test_pooled import LOSSES, Q
from tests.engine.harness import SIX, run


# --- small operations ---------------------------------------------------------------------------
@pytest.mark.ci
@pytest.mark.parametrize(("short", "handed_over"), [(10**6, False), (300_000, True)])
def test_a_run_of_small_operations_has_no_second_thread(
    short: int, handed_over: bool, pools: list[PooledOps], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its longest operation is a training of 460,000 multiply-adds."""
    monkeypatch.setattr(pooled, "SHORT", short)
    monkeypatch.setattr(
        PooledOps, "_work", lambda pool, work=PooledOps._work: threads.add(pool) or work(pool)
    )
    threads: set[PooledOps] = set()
    run({**SIX, **LOSSES, "rounds": 2, "workers": 2})
    assert len(pools) == 3
    assert threads == (set(pools) if handed_over else set())


def test_work_done_in_line_is_done_once() -> None:
    """Calls of a batched kernel are noted in line too: a pool must not do them a second time."""
    seen: list[int] = []

    class Batch:
        chunk = 8

        def many(self, calls: list[tuple[int]]) -> list[np.ndarray]:
            seen.extend(number for (number,) in calls)
            return [np.full((1, 16), number, np.uint32) for (number,) in calls]

    async def main() -> None:
        ops, batch = PooledOps(Q, 2, 10**9), Batch()
        noted = [ops._op(batch, (1, 16, U32), {}, number) for number in range(3)]
        total = ops.weighted_sum(noted, [1, 1, 1])
        assert (await ops.get(total)).tolist() == [[3] * 16]
        await ops.drain()
        ops.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pooled, "SHORT", 40)
        asyncio.run(main())
    assert seen == [0, 1, 2]


def test_small_operations_after_a_long_one_are_in_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooled, "SHORT", 1000)
    done: list[str] = []

    async def sums() -> None:
        ops = PooledOps(Q, 2, 10**9)
        monkeypatch.setattr(ops._pool, "submit", lambda work: done.append("handed over"))
        try:
            ops.prg(ops.secret(bytes([7]) * 32), 2000)
            small = [ops.prg(ops.secret(bytes([k]) * 32), 99) for k in range(2)]
            total = ops.add(*small)  # nobody asked for it
            expected = EagerOps(Q)
            plain = [expected.prg(expected.secret(bytes([k]) * 32), 99) for k in range(2)]
            assert (total.content.value == expected.add(*plain).content).all()
            await ops.get(total)
            assert ops.pending_bytes == 0
            assert not done
            large = ops.add(*[ops.prg(ops.secret(bytes([k]) * 32), 2000) for k in range(2)])
            assert not large.content.done
            ops._schedule([large.content])
            assert done == ["handed over"]
        finally:
            ops.close()

    asyncio.run(sums())


def test_a_small_operation_that_fails_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """In line too: an error of a kernel is nothing that a machine may take for a peer's fault."""
    monkeypatch.setattr(pooled, "SHORT", 300_000)  # training is longer, a message is not
    original = keys.open_

    def open_(k: Any, sealed: Any, *rest: Any) -> Any:
        return original(k, np.asarray(sealed)[::-1], *rest)

    monkeypatch.setattr(keys, "open_", open_)
    with pytest.raises(DataPlaneError, match=r"secagg, round 0, user \d, receive inbox: open_: "):
        run({**SIX, "protocols": ["secagg"], "rounds": 1, "workers": 2})


def test_small_work_that_waits_takes_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum of pending results is deferred; no second thread is started for two of them."""
    monkeypatch.setattr(pooled, "SHORT", 1000)
    started: list[Any] = []

    async def sums() -> None:
        ops = PooledOps(Q, 2, 10**9)
        monkeypatch.setattr(ops._pool, "submit", started.append)
        large = [ops.prg(ops.secret(bytes([k]) * 32), 1000) for k in range(4)]
        small = [ops.pick(one, [0]) for one in large]
        ops._schedule([one.content for one in small])
        assert len(started) == 1
        ops.close()

    asyncio.run(sums())
