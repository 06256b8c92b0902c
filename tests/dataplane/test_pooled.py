"""Pooled work: the same content whatever the order, the budget kept, failures named, nothing skipped."""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.crypto import keys, mds, prg
from simfl.dataplane import pooled
from simfl.dataplane.eager import EagerOps
from simfl.dataplane.handles import F64, U32, Handle
from simfl.dataplane.ops import Ops
from simfl.dataplane.pooled import PooledOps
from simfl.errors import DataPlaneError
from simfl.runs import build
from tests.engine.harness import ASYNC, SESSIONS, SIX, lines, run, script
from tests.sizes import examples

Q = 2**32 - 5
LOSSES = {"dropout": script((0, 0, "shares", "mid_send"), (1, 1, "upload", "mid_send"))}
TINY = 1e-6


def calculation(ops: Ops, plan: list[tuple[int, int, int]]) -> list[Handle]:
    """Sums of earlier results, by a plan."""
    out = [ops.prg(ops.secret(bytes([k]) * 32), 16) for k in range(2)]
    for a, b, kind in plan:
        left, right = out[a % len(out)], out[b % len(out)]
        match kind:
            case 0:
                out.append(ops.add(left, right))
            case 1:
                out.append(ops.weighted_sum([left, right, left], [1, 2, 3]))
            case _:
                out.append(ops.total(ops.join([left, right])))
    return out


PLANS = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 2)), max_size=30)


@settings(max_examples=examples(30), deadline=None)
@given(PLANS, st.integers(1, 3), st.booleans(), st.sampled_from([0, 20, 45, 99]))
def test_pooled_content_is_eager_content(
    plan: list[tuple[int, int, int]], workers: int, last: bool, short: int
) -> None:
    """Also where some are short, so that the pool is first asked in the middle of the plan."""

    async def in_a_pool() -> list[Any]:
        ops = PooledOps(Q, workers, 10**9)
        try:
            handles = calculation(ops, plan)
            await ops.wait_for_budget()
            out = [await ops.get(handle) for handle in (reversed(handles) if last else handles)]
            await ops.drain()
            assert ops.pending_bytes == 0
            if not short:
                assert ops.executed == len(plan) + sum(kind == 2 for _, _, kind in plan) + 4
            return out[::-1] if last else out
        finally:
            ops.close()

    expected = [handle.content for handle in calculation(EagerOps(Q), plan)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pooled, "SHORT", short)
        for got, value in zip(asyncio.run(in_a_pool()), expected, strict=True):
            np.testing.assert_array_equal(got, value)


def test_relayed_rows_are_let_go_one_receiver_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    seen: list[int] = []
    seal, open_ = keys.seal, keys.open_

    class Row:  # an array that can be in a set
        def __init__(self, row: Any) -> None:
            self.array, self.nbytes = row, row.nbytes
            alive.add(self)

    def opened(k: Any, sealed: list[Row], *rest: Any) -> Any:
        seen.append(len(alive))
        return open_(k, [row.array for row in sealed], *rest)

    monkeypatch.setattr(keys, "seal", lambda *args: [Row(row) for row in seal(*args)])
    monkeypatch.setattr(keys, "open_", opened)

    async def main() -> None:
        n, ops = 4, PooledOps(Q, 1, 10**9)
        lock = ([keys.nonce(0, k) for k in range(n)], [b""] * n)
        secret = ops.join([ops.secret(bytes([k]) * 32) for k in range(n)])
        noise = ops.secret(bytes([7]) * 32)
        sent = [
            ops.seal(
                secret,
                ops.encode(ops.prg(ops.secret(bytes([9, k] * 16)), 4096), noise, range(1, n + 1), 2, 1),
                *lock,
            )
            for k in range(n)
        ]
        got = [ops.gather(sent, [k] * n) for k in range(n)]
        del sent
        totals = [
            ops.total(ops.open(ops.pick(secret, [k] * n), rows, [lock[0][k]] * n, lock[1], range(n), U32))
            for k, rows in enumerate(got)
        ]
        del got
        await ops.get(totals[0])
        await ops.drain()
        ops.close()

    asyncio.run(main())
    assert seen == [16, 12, 8, 4]


def test_unneeded_masks_are_expanded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    made, expand = [], prg.expand
    monkeypatch.setattr(prg, "expand", lambda *args: made.append(args[1]) or expand(*args))

    async def main() -> None:
        ops = PooledOps(Q, 1, 10**9)
        ops.prg(ops.secret(bytes(32)), 8)
        used = ops.prg(ops.secret(bytes([1]) * 32), 9)
        ops.add(used, used)
        await ops.drain()
        assert ops.executed == 5  # two secrets, two masks, a sum
        ops.close()

    asyncio.run(main())
    assert sorted(made) == [8, 9, 9]  # for both sides of the sum


def test_chains_are_finished_before_new_ones_are_begun() -> None:
    """In the order in which needed results depend on them; unneeded work waits for the end."""
    done: list[str] = []

    def step(name: str, *_: Any) -> np.ndarray:
        done.append(name)
        return np.zeros((1, 1), np.uint32)

    async def main() -> None:
        ops = PooledOps(Q, 1, 10**9)
        firsts = [ops.run_uncharged(step, (1, 1, U32), f"first {k}") for k in range(3)]
        ops.run_uncharged(step, (1, 1, U32), "nobody's")
        seconds = [ops.run_uncharged(step, (1, 1, U32), f"second {k}", firsts[k]) for k in range(3)]
        both = ops.run_uncharged(step, (1, 1, U32), "both", [seconds[2], seconds[0]])
        await asyncio.sleep(0.05)
        assert not done
        await ops.get(both)
        assert done == ["first 2", "second 2", "first 0", "second 0", "both"]
        await ops.drain()
        assert done[5:] == ["nobody's", "first 1", "second 1"] or done[5:] == [
            "first 1",
            "second 1",
            "nobody's",
        ]
        ops.close()

    asyncio.run(main())


def test_room_waits_until_output_fits_half_the_budget() -> None:
    gate = threading.Event()

    def slow(_: Any) -> np.ndarray:
        gate.wait(10)
        return np.zeros((1, 1000), np.uint32)

    async def main() -> None:
        ops = PooledOps(Q, 1, 6000)
        seed = ops.secret(bytes(32))
        handles = [ops.run_uncharged(slow, (1, 1000, U32), seed) for _ in range(3)]
        assert ops.pending_bytes >= 12_000
        waiting = asyncio.ensure_future(ops.wait_for_budget())
        await asyncio.sleep(0.05)
        assert not waiting.done()
        gate.set()
        await waiting
        assert (ops.pauses, ops.pending_bytes <= 3000) == (1, True)
        assert (await ops.get(handles[0])).shape == (1, 1000)
        ops.close()

    asyncio.run(main())


@pytest.mark.ci
@pytest.mark.parametrize("workers", [1, 2])
def test_a_tiny_budget_pauses_and_changes_no_result(
    workers: int, pools: list[PooledOps], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "PENDING_SHARE", TINY)
    world = {**SIX, **LOSSES, "rounds": 2}
    eager, tiny = run(world), run({**world, "workers": workers})
    assert lines(tiny) == lines(eager)
    for name, protocol in tiny.summary["protocols"].items():
        for got, expected in zip(protocol["rounds"], eager.summary["protocols"][name]["rounds"], strict=True):
            assert got["aggregate_exact"] is True
            assert got["accuracy"] == pytest.approx(expected["accuracy"], abs=0.01)
    assert len(pools) == 3
    assert all(pool.pauses for pool in pools)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("overrides", "base"),
    [({**SIX, **LOSSES, "rounds": 2}, None), ({"population.availability": SESSIONS}, ASYNC)],
    ids=["rounds", "buffer"],
)
def test_pooled_work_is_all_of_the_work_lost_users_included(
    overrides: dict[str, Any],
    base: dict[str, Any] | None,
    pools: list[PooledOps],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pooled operations have executed the kernels of eager ones when the run is over."""
    where = {} if base is None else {"base": base}
    executed = 0
    original = EagerOps._run

    def counting(self: Ops, *arguments: Any) -> Handle:
        nonlocal executed
        executed += 1
        return original(self, *arguments)

    monkeypatch.setattr(EagerOps, "_run", counting)
    run(overrides, **where)
    run({**overrides, "workers": 2}, **where)
    assert sum(pool.executed for pool in pools) == executed > 100


# --- failures -----------------------------------------------------------------------------------
def test_a_failing_kernel_names_protocol_round_party_and_step(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, original = 0, mds.decode

    def decode(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise ValueError("boom")
        return original(*arguments)

    monkeypatch.setattr(mds, "decode", decode)
    world = {**SIX, "protocols": ["lightsecagg"], "rounds": 3, "workers": 2}
    with pytest.raises(
        DataPlaneError, match=r"lightsecagg, round 1, the server, receive answer: decode: boom"
    ):
        run(world)


def test_content_that_belies_the_control_plane_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ciphertext is forged behind the machines' back: pooled work finds out for real."""
    from simfl.crypto import keys

    original = keys.seal

    def seal(*arguments: Any) -> Any:
        out = np.array(original(*arguments))
        out[0, 0] ^= 1
        return out

    monkeypatch.setattr(keys, "seal", seal)
    with pytest.raises(DataPlaneError, match=r"secagg, round 0, user \d, receive inbox: open_: "):
        run({**SIX, "protocols": ["secagg"], "workers": 1})


@pytest.mark.parametrize("workers", [1, 3])
def test_after_a_failure_nothing_hangs(workers: int) -> None:
    def fails(*_: Any) -> None:
        raise ArithmeticError("no")

    async def main() -> None:
        ops = PooledOps(Q, workers, 10)
        ops.begin_step(("p", 3, 4, "receive", "thing"), "upload")
        bad = ops.run_uncharged(fails, (1, 16, U32), ops.secret(bytes(32)))
        after = ops.add(bad, ops.prg(ops.secret(bytes(32)), 16))
        for wait in (ops.get(after), ops.drain()):
            with pytest.raises(DataPlaneError, match="p, round 3, user 4, receive thing: fails: no"):
                await wait
        with pytest.raises(DataPlaneError, match="receive thing: fails: no"):
            ops.raise_if_failed()
        ops.close()

    asyncio.run(asyncio.wait_for(main(), 20))


def test_closing_drops_work_that_has_not_begun() -> None:
    ran, gate = [], threading.Event()

    def kernel(number: int) -> np.ndarray:
        gate.wait(10)
        ran.append(number)
        return np.zeros((1, 1))

    async def main() -> None:
        ops = PooledOps(Q, 1, 10**9)
        for number in range(5):
            ops.run_uncharged(kernel, (1, 1, F64), number)
        threading.Timer(0.05, gate.set).start()
        ops.close()

    asyncio.run(main())
    assert len(ran) <= 1


def test_pooled_prg_is_the_eager_prg() -> None:
    """The oracle of this file is itself right."""
    seed = EagerOps(Q).secret(bytes(32))
    np.testing.assert_array_equal(EagerOps(Q).prg(seed, 8).content, prg.expand(seed.content, 8, Q))
