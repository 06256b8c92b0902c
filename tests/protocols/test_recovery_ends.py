"""A recovery ends with the first answers from which every secret comes back, as counted by sets alone."""

from __future__ import annotations

from typing import Any

import pytest

from simfl.protocols.loopback import LoopbackRound
from simfl.protocols.machine import Reason
from tests.protocols.harness import World, check_round, lose_at, plain_sum, world

N, LOST = 12, {3: "upload", 7: "upload"}
SPARSE: list[tuple[str, dict[str, Any]]] = [
    ("secagg", {"t": 5}),
    ("secagg_plus", {"k": 4, "t": 3}),
    ("secagg_plus", {"k": 4, "t": 3, "all_masks": True}),
    ("ccesa", {"p": 0.6, "t": 3}),
    ("ccesa", {"p": 0.6, "t": 2, "majority": True}),
]


def least(w: World, answered: list[int]) -> int:
    """Return how many of these answers, in their order, give back every secret that is asked for."""
    graph, alive = w.server.graph, set(range(N)) - set(LOST)
    owners = {i for i in range(N) if i in alive or alive & set(graph[i])}
    t = {i: max(2, len(graph[i]) // 2 + 1) if w.params.majority else w.params.t for i in owners}
    counts = range(len(answered) + 1)
    return next(m for m in counts if all(len(set(answered[:m]) & set(graph[i])) >= t[i] for i in owners))


def late(out: LoopbackRound) -> list[int]:
    """Return the users whose answers came when all was over."""
    return [i.sender for _, i in out.ignored if (i.message, i.reason) == ("answer", Reason.LATE)]


@pytest.mark.ci(but=["-0]", "-1]"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("protocol", "how"), SPARSE, ids=str)
def test_recovery_ends_with_t_shares_of_each_secret(protocol: str, how: dict[str, Any], seed: int) -> None:
    w = world(protocol, N, seed=seed, **how)
    out = w.run(fate=lose_at(LOST))
    answered = [sender for sender, _, m in out.sent if m.kind == "answer"]
    needed = least(w, answered)
    assert len(answered) == N - len(LOST)
    assert len(w.server.answered[3]) == needed
    assert out.result.total.content[0].tolist() == plain_sum(w, [m.user for m in out.result.members])
    assert late(out) == answered[needed:]
    assert [give_up.phase for give_up in out.gave_up] == ["upload"]


@pytest.mark.parametrize(("protocol", "how"), [*SPARSE, ("lightsecagg", {"U": 5, "T": 2})], ids=str)
def test_recovery_waits_for_all_with_all_answers(protocol: str, how: dict[str, Any]) -> None:
    w = world(protocol, N, all_answers=True, **how)
    out = w.run(fate=lose_at(LOST))
    assert check_round(w, out, LOST, 5)
    assert len(w.server.answered[3]) == N - len(LOST)
    assert not late(out)
