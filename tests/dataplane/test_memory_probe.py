"""Weighed runs: by hand for single operations, and a whole run against arrays that are followed."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

import numpy as np
import pytest

from simfl.dataplane.eager import EagerOps
from simfl.dataplane.handles import U8, U32, Handle
from simfl.dataplane.shadow import MemoryProbeOps
from simfl.engine.driver import drive
from simfl.engine.setup import ClosedRound
from simfl.runs import build
from simfl.runs.memory import measure_memory
from simfl.scenario.load import load
from tests.engine.harness import SIX, SYNC, script

Q = 2**32 - 5
BIG = {
    **SIX,
    "network.users.uplink_mbps": 1000.0,
    "network.users.downlink_mbps": 1000.0,
    "learning.model": "logistic",
    "learning.dataset": {"kind": "synthetic", "shape": [1, 128, 128], "classes": 10, "train": 12, "test": 2},
}
D = 163_850


def test_handles_weigh_as_much_as_their_content() -> None:
    ops = MemoryProbeOps(Q)
    a, b = ops.prg(ops.secret(bytes(32)), 5000), ops.prg(ops.secret(bytes(32)), 5000)
    assert ops.live == 2 * 20_000
    c = ops.add(a, b)
    assert ops.live == 3 * 20_000
    del a, b
    assert (ops.live, ops.peak) == (20_000, 3 * 20_000)
    del c
    assert ops.live == 0


def test_picked_rows_are_shared_and_sealed_ones_let_go() -> None:
    ops = MemoryProbeOps(Q)
    z, seed = ops.prg(ops.secret(bytes(32)), 4000), ops.secret(bytes(32))
    coded = ops.encode(z, seed, (1, 2, 3, 4), 3, 1)  # 4 rows of 2000 elements
    del z, seed
    assert ops.live == 4 * 8000
    row, rest = ops.pick(coded, [0]), ops.pick(coded, [1, 2, 3])
    assert ops.live == 4 * 8000 + 8000  # one alone is a copy
    del coded
    assert ops.live == 4 * 8000 + 8000
    keys = ops.agree(ops.secret(bytes(32)), Handle(3, 32, U8, [None] * 3), b"")
    sealed = ops.seal(keys, rest, [b""] * 3, [b""] * 3)
    del rest, keys
    assert ops.live == 8000 + 3 * 8016
    one = ops.gather([sealed, sealed], [2, 2])
    del sealed, row
    assert ops.live == 8016
    del one
    assert ops.live == 0


def test_streamed_content_is_not_kept() -> None:
    ops = MemoryProbeOps(Q)
    z = ops.prg(ops.secret(bytes(32)), 4000)
    coded = ops.encode(z, ops.secret(bytes(32)), (1, 2, 3, 4), 3, 1)
    sealed = ops.seal(Handle(4, 32, U8), coded, [b""] * 4, [b""] * 4)
    opened = ops.open(Handle(4, 32, U8), sealed, [b""] * 4, [b""] * 4, [0] * 4, U32)
    assert ops.live == 16_000 + 32_000 + 4 * 8016 + 32_000
    assert ops.kept == 0
    held = ops.total(opened)
    assert ops.kept == held.size_bytes == 8000


class Followed(EagerOps):
    """Eager operations that know how many bytes of content are alive."""

    def __init__(self) -> None:
        super().__init__(Q)
        self.live = self.peak = 0
        self.seen: set[int] = set()

    def _run(self, *arguments: Any) -> Handle:
        out = super()._run(*arguments)
        for array in out.content if isinstance(out.content, list) else [out.content]:
            owner = array
            while isinstance(owner.base, np.ndarray):
                owner = owner.base
            if id(owner) not in self.seen:
                self.seen.add(id(owner))
                self.live += owner.nbytes
                self.peak = max(self.peak, self.live)
                weakref.finalize(owner, self._gone, id(owner), owner.nbytes)
        return out

    def _gone(self, key: int, nbytes: int) -> None:
        self.seen.discard(key)
        self.live -= nbytes


@pytest.mark.ci(but=["fedavg"])
@pytest.mark.parametrize("protocol", ["fedavg", "secagg", "lightsecagg"])
def test_a_probe_holds_as_much_as_an_executed_run(protocol: str) -> None:
    overrides = {**BIG, "protocols": [protocol], "dropout": script((1, 0, "upload", "before_send"))}
    study = build.build(load(SYNC, {**overrides, "memory_limit_gb": 10.0}))
    weighed = measure_memory(study.session(protocol, build.modelled(study), MemoryProbeOps(Q)))
    followed = Followed()
    asyncio.run(drive(study.session(protocol, build.modelled(study), followed), nothing, lambda: None))
    assert weighed.peak == pytest.approx(followed.peak, rel=0.01)
    assert weighed.peak > 6 * 4 * D


async def nothing(outcome: ClosedRound) -> None: ...


@pytest.mark.parametrize(("protocol", "peak", "rest"), [("secagg", 15, 3), ("lightsecagg", 35.5, 5.5)])
def test_used_content_is_released(protocol: str, peak: float, rest: float) -> None:
    """In vectors of the model: 6 updates and 6 masks are alive at once, none when the round is over; a mask
    goes with its upload. A LightSecAgg share is half a vector: 6 x 5 opened, 6 own stay; sealed ones go."""
    study = build.build(load(SYNC, {**BIG, "protocols": [protocol], "memory_limit_gb": 10.0}))
    weighed = measure_memory(study.session(protocol, build.modelled(study), MemoryProbeOps(Q)))
    assert weighed.peak / (4 * D) == pytest.approx(peak, abs=0.1)
    assert weighed.rest / (4 * D) == pytest.approx(rest, abs=0.1)
