"""Coded shares that stream give the bits of held ones, and each is really sealed and opened."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.crypto import keys
from simfl.dataplane import streamed_shares
from simfl.dataplane.eager import EagerOps
from simfl.dataplane.handles import U32, Handle
from simfl.dataplane.ops import Ops
from simfl.dataplane.pooled import PooledOps
from simfl.errors import DataPlaneError
from simfl.protocols.channels import aads_of, nonces_of
from simfl.protocols.index_views import Same
from simfl.runs import build, memory
from tests.engine.harness import SIX, SYNC, lines, run, script
from tests.sizes import examples

Q = 2**32 - 5
N, U, T, D = 5, 3, 1, 40
POINTS = range(1, N + 1)


def secret(ops: Ops, number: int) -> Handle:
    return ops.secret(bytes([number]) * 32)


def exchange(ops: Ops, plan: list[tuple[int, list[int]]], early: list[int]) -> list[Handle]:
    """N senders code, seal and relay a mask each; receiver j opens its rows and adds those of a plan up.
    Rows for receivers in `early` are sealed and never opened."""
    secrets = [secret(ops, 1 + i) for i in range(N)]
    publics = ops.join([ops.public(s) for s in secrets])
    channels = [ops.agree(s, publics, b"test") for s in secrets]
    sealed, own = [], []
    for i in range(N):
        coded = ops.encode(ops.prg(secret(ops, 50 + i), D), secret(ops, 90 + i), POINTS, U, T)
        others = [j for j in range(N) if j != i]
        own.append(ops.pick(coded, [i]))
        mine = Same(i, N - 1)
        items = ops.pick(coded, others)
        sealed.append(
            ops.seal(
                ops.pick(channels[i], others), items, nonces_of(mine, Same(0, N - 1)), aads_of(mine, others)
            )
        )
    held = {}
    for j in [j for j in range(N) if j not in early]:
        senders = [i for i in range(N) if i != j]
        rows = ops.gather([sealed[i] for i in senders], [j - (j > i) for i in senders])
        nonces, aads = nonces_of(senders, Same(0, N - 1)), aads_of(senders, Same(j, N - 1))
        opened = ops.open(ops.pick(channels[j], senders), rows, nonces, aads, senders, U32)
        held[j] = ops.join([opened, own[j]])
    return [ops.total(ops.pick(held[j], at)) for j, at in plan if j in held]


async def pooled(
    plan: list[tuple[int, list[int]]], early: list[int], order: list[int], workers: int
) -> list[Any]:
    ops = PooledOps(Q, workers, 10**9, streaming=True)
    try:
        totals = exchange(ops, plan, early)
        found: dict[int, Any] = {}
        for k in [k for k in order if k < len(totals)]:
            found[k] = await ops.get(totals[k])
        await ops.drain()
        return [found[k] for k in range(len(totals))]
    finally:
        ops.close()


@settings(max_examples=examples(25), deadline=None, derandomize=True)
@given(
    st.permutations(range(N)).flatmap(
        lambda who: st.tuples(
            *[
                st.tuples(st.just(j), st.lists(st.integers(0, N - 1), min_size=1, max_size=N, unique=True))
                for j in who
            ]
        )
    ),
    st.lists(st.integers(0, N - 1), max_size=2, unique=True),
    st.permutations(range(N)),
    st.integers(1, 2),
    st.sampled_from([3, 7, 1000]),
)
def test_streamed_sums_are_held_sums(
    plan: Any, early: list[int], order: list[int], workers: int, width: int
) -> None:
    """Also where a sum is asked for on its own, and where a row is carried in several blocks."""
    before, streamed_shares.BLOCK_COLUMNS = streamed_shares.BLOCK_COLUMNS, width
    try:
        got = asyncio.run(pooled(list(plan), early, order, workers))
    finally:
        streamed_shares.BLOCK_COLUMNS = before
    expected = [handle.content for handle in exchange(EagerOps(Q), list(plan), early)]
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_sum_asked_for_later_has_its_rows_made_again() -> None:
    plan = [(0, [0, 1, 2, 3, 4])]

    async def main() -> tuple[Any, Any]:
        ops = PooledOps(Q, 2, 10**9, streaming=True)
        secrets = [secret(ops, 1 + i) for i in range(2)]
        channel = ops.agree(secrets[0], ops.public(secrets[1]), b"x")
        coded = ops.encode(ops.prg(secret(ops, 9), D), secret(ops, 8), POINTS, U, T)
        sealed = ops.seal(channel, ops.pick(coded, [1]), [bytes(12)], [b""])
        opened = ops.open(channel, sealed, [bytes(12)], [b""], [0], U32)
        first = ops.total(opened)
        one = await ops.get(first)
        second = ops.total(ops.join([opened, ops.pick(coded, [2])]))
        two = await ops.get(second)
        await ops.drain()
        ops.close()
        return one, two

    eager = EagerOps(Q)
    coded = eager.encode(eager.prg(secret(eager, 9), D), secret(eager, 8), POINTS, U, T).content.astype(
        np.uint64
    )
    one, two = asyncio.run(main())
    np.testing.assert_array_equal(one[0], coded[1])
    np.testing.assert_array_equal(two[0], (coded[1] + coded[2]) % Q)
    assert plan


def test_another_use_of_streamed_shares_is_an_error() -> None:
    ops = PooledOps(Q, 1, 10**9, streaming=True)
    coded = ops.encode(ops.prg(secret(ops, 9), D), secret(ops, 8), POINTS, U, T)
    with pytest.raises(TypeError, match="decode of coded shares that stream"):
        ops.decode(ops.pick(coded, [0, 1, 2]), [1, 2, 3], U, T, D)
    ops.close()


# --- whole rounds
LOSSES = {
    "rounds": 3,
    "protocols": ["lightsecagg"],
    "dropout": script(
        (0, 0, "shares", "mid_send"),
        (1, 0, "upload", "before_send"),
        (2, 1, "recovery", "before_send"),
        (3, 1, "upload", "mid_send"),
    ),
}


@pytest.fixture
def streaming(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every LightSecAgg entry streams; how many masks were coded for how many receivers, one item a unit."""
    coded: list[int] = []
    original = streamed_shares.StreamKernel.__call__

    def counting(self: streamed_shares.StreamKernel, *arguments: Any) -> None:
        coded.append(sum(lock[0] is not None for lock in self.seal_args))
        original(self, *arguments)

    monkeypatch.setattr(streamed_shares.StreamKernel, "__call__", counting)
    monkeypatch.setattr(memory, "is_within_limit", lambda s, name, p, read: not name.startswith("light"))
    monkeypatch.setattr(memory, "plan", lambda *_: memory.Memory(2, 1))
    return coded


@pytest.mark.ci
@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize(
    "privacy", [{"T": 2, "D": 2, "U": 4}, {"T": 3, "D": 2, "U": 4}], ids=["U - T = 2", "U - T = 1"]
)
def test_a_streamed_run_is_the_held_run(
    workers: int, privacy: dict[str, int], streaming: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = {**SIX, **LOSSES, "privacy": privacy}
    streamed = run({**world, "workers": workers})
    carried = sum(streaming)
    sealed: list[int] = []
    seal = keys.seal
    monkeypatch.setattr(keys, "seal", lambda *args: sealed.append(len(args[1])) or seal(*args))
    monkeypatch.setattr(memory, "plan", lambda *_: memory.Memory(2))
    held = run(world)
    assert lines(streamed) == lines(held)
    rounds = streamed.summary["protocols"]["lightsecagg"]["rounds"]
    assert [r["aggregate_exact"] for r in rounds] == [True, True, True]
    assert carried == sum(sealed) > 3 * 5 * 5  # every share of every user, lost or not, and none twice


def test_streamed_weights_are_the_held_weights(streaming: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    streamed = run({**SIX, **LOSSES})
    assert streaming
    monkeypatch.undo()
    held = run({**SIX, **LOSSES})
    for one, other in zip(streamed.measured["lightsecagg"], held.measured["lightsecagg"], strict=True):
        assert (one.aggregate_exact, one.accuracy, one.loss) == (True, other.accuracy, other.loss)


def test_a_share_that_was_changed_on_its_way_is_an_error(
    streaming: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = keys.SealedPipe

    def another(sealing: Any, opening: Any) -> keys.SealedPipe:
        return original(sealing, opening and (*opening[:2], opening[2] + b"?"))

    monkeypatch.setattr(keys, "SealedPipe", another)
    with pytest.raises(
        DataPlaneError, match=r"lightsecagg, round 0, user \d, receive roster: coded shares: .*authenticate"
    ):
        run({**SIX, **LOSSES})


# --- held or streamed
BIG = {
    "population.users": 6,
    "privacy": {"T": 2, "D": 2, "U": 4},
    "network.users.uplink_mbps": 1000.0,
    "network.users.downlink_mbps": 1000.0,
    "learning.model": "mcmahan_cnn",
    "learning.dataset": {"kind": "synthetic", "shape": [1, 28, 28], "classes": 10, "train": 6, "test": 2},
    "protocols": ["lightsecagg"],
}


@pytest.mark.parametrize(("limit", "streams_"), [(4.0, None), (0.5, False), (0.2, True)])
def test_shares_stream_if_they_do_not_fit(limit: float, streams_: bool | None) -> None:
    entry = build.build(build_of({**BIG, "memory_limit_gb": limit})).memory.get("lightsecagg")
    assert (entry and entry.streamed is not None) == streams_


def test_shares_that_fit_neither_way_are_refused_with_figures() -> None:
    words = r"memory_limit_gb=0.05 is below the 0\.\d+ GB that lightsecagg takes while its .* stream \(held"
    with pytest.raises(ValueError, match=words):
        build.build(build_of({**BIG, "memory_limit_gb": 0.05}))


def test_the_measured_clock_holds_everything_or_refuses() -> None:
    words = r"memory_limit_gb=0.1 is below the 0\.\d+ GB that lightsecagg holds at once; with clock: measured"
    with pytest.raises(ValueError, match=words):
        build.build(build_of({**BIG, "memory_limit_gb": 0.1, "clock": "measured"}))


def build_of(overrides: dict[str, Any]) -> Any:
    from simfl.scenario.load import load

    return load(SYNC, overrides)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_training_that_diverges_ends_a_streamed_run(workers: int, streaming: list[int]) -> None:
    diverges = {"learning.lr": 1e9, "learning.weight_decay": 1e9, "learning.epochs": 5}
    diverges |= {"protocols": ["lightsecagg"]}
    with pytest.raises(DataPlaneError, match="lightsecagg: training diverged: user 0, round 0: "):
        run({**SIX, **diverges, "workers": workers})
