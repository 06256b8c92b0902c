"""No nonce, key or mask seed serves twice: not in two rounds, not in two protocols, not after an abort."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest

from simfl.crypto import keys, mds, prg, quantize, shamir
from simfl.dataplane.eager import EagerOps
from simfl.protocols.machine import SERVER
from tests.engine.harness import ASYNC, SIX, run, script

SEED_AT = {prg.expand: 0, prg.mask: 1, mds.encode: 1, shamir.share: 1, quantize.quantise: 4, keys.public: 0}
"""Kernel -> which of its arguments holds the seeds, or the secret key."""


@dataclass
class Drawn:
    """What the users' machines used: (key, nonce) -> where, seed -> (kernel, where)."""

    nonces: dict[tuple[bytes, bytes], list[tuple[Any, ...]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    seeds: dict[bytes, list[tuple[str, tuple[Any, ...]]]] = field(default_factory=lambda: defaultdict(list))

    def note(self, where: tuple[Any, ...], kernel: Any, args: tuple[Any, ...]) -> None:
        if kernel is keys.seal:
            for key, nonce in zip(args[0].content, args[2], strict=True):
                self.nonces[bytes(key), nonce].append(where)
        if kernel in SEED_AT:
            for seed in args[SEED_AT[kernel]].content:
                self.seeds[bytes(seed)].append((kernel.__name__, where))


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    seen, real = Drawn(), EagerOps._run

    def tapped(ops: EagerOps, kernel: Any, shape: Any, args: Any) -> Any:
        if ops.where and ops.where[2] != SERVER:
            seen.note(ops.where, kernel, args)
        return real(ops, kernel, shape, args)

    monkeypatch.setattr(EagerOps, "_run", tapped)
    return seen


def check(drawn: Drawn) -> set[tuple[str, int]]:
    """The law; and the (protocol, round) in which something was drawn."""
    assert all(len(where) == 1 for where in drawn.nonces.values())
    for uses in drawn.seeds.values():
        kernels, wheres = {kernel for kernel, _ in uses}, {where[:2] for _, where in uses}
        assert len(kernels) == len(wheres) == 1
        parties = sorted(where[2] for _, where in uses)
        assert len(set(parties)) == len(parties) <= (2 if kernels == {"mask"} else 1)  # a_ij is of two users
    return {where[:2] for uses in drawn.seeds.values() for _, where in uses}


@pytest.mark.ci
def test_no_round_or_protocol_reuses_nonces_keys_or_masks(drawn: Drawn) -> None:
    lost = script(
        (5, 0, "upload", "before_send"),
        *((user, 1, "upload", "before_send") for user in range(4)),
        (0, 2, "recovery", "before_send"),
        (1, 2, "upload", "delay"),
    )
    protocols = {name: {"protocol": name.split("-")[0]} for name in ("secagg", "lightsecagg", "secagg-again")}
    result = run({**SIX, "rounds": 4, "protocols": protocols, "dropout": lost})
    for summary in result.summary["protocols"].values():
        assert [r["status"] for r in summary["rounds"]] == ["completed", "aborted", "completed", "completed"]
    assert check(drawn) == {(name, index) for name in protocols for index in range(4)}
    assert len(drawn.nonces) == len(protocols) * 4 * 6 * 5
    pairwise = [uses for uses in drawn.seeds.values() if len(uses) == 2]
    assert len(pairwise) > 100  # both secagg protocols, of each pair that uploaded


@pytest.mark.ci
def test_no_cycle_reuses_nonces_or_masks(drawn: Drawn) -> None:
    trouble = {
        "network.users.jitter_s": {"exponential": 0.03},
        "deadlines.recovery": 0.08,
        "dropout": {"rate": 0.2},
        "rounds": 12,
    }
    names = {"lightsecagg_async": {}, "again": {"protocol": "lightsecagg_async"}}
    result = run({**trouble, "protocols": names}, ASYNC)
    for summary in result.summary["protocols"].values():
        assert {r["status"] for r in summary["rounds"]} == {"completed", "aborted"}
    assert {name for name, _ in check(drawn)} == set(names)
    assert len(drawn.nonces) > 300
