"""LightSecAgg App. F.2: pairwise masks of different t_i do not cancel, and those of LightSecAgg come off.

The machines' own masks: users who upload zeros upload their masks. Their sum without the private parts
PRG(b_i) must be 0 where all masks are of one round. Over a buffer, LightSecAgg's machines recover the exact
sum of updates that were made on different versions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from papers.entry import Cell, Entry, Evidence, Place
from simfl.dataplane.eager import EagerOps
from simfl.dataplane.handles import F32, Handle
from simfl.protocols.keyed_messages import MaskedUpload
from simfl.protocols.loopback import LoopbackBuffer, run_round
from simfl.protocols.machine import SERVER, Params, Result, Update
from simfl.protocols.registry import PROTOCOLS
from simfl.random_streams import Entropy, Streams
from simfl.trace.codes import UpdateId

N, D, Q = 8, 1000, 2**32 - 5
DEGREE, SHARES = 4, 3
UNIFORM = 0.05
"""Relative: how far the mean of what is left may be from that of uniform elements."""

Row = NDArray[np.int64]


def masks(protocol: str, t: int) -> list[Row]:
    """Return the pairwise part of each user's mask of round t."""
    params = Params(d=D, q=Q, N=N, T=SHARES - 1, t=SHARES, k=DEGREE, session=bytes([t]))
    ops, kind = EagerOps(Q), PROTOCOLS[protocol]()
    # One graph for all rounds, so that what is left is due to the masks alone.
    server = kind.server(range(N), params, ops, Entropy(Streams(ENTRY.seed).bytes("graph"), SERVER, 0))
    root = Streams(ENTRY.seed).bytes("masks", t)
    clients: dict[int, Any] = {
        user: kind.client(user, params, ops, Entropy(root, user, t)) for user in range(N)
    }
    zeros = Update(Handle(1, D, F32, np.zeros((1, D), np.float32)), 1)
    done = run_round(server, clients, dict.fromkeys(range(N), zeros))
    uploads = {sender: m.masked.content for sender, _, m in done.sent if isinstance(m, MaskedUpload)}
    own = {user: ops.prg(client.b, D + 1).content for user, client in clients.items()}
    return [(uploads[u].astype(np.int64) - own[u].astype(np.int64))[0, :D] % Q for u in range(N)]


def left_over(of: Mapping[int, Sequence[Row]], rounds: Sequence[int]) -> Row:
    """Return the sum of the pairwise masks of all users, the i-th of its round rounds[i]."""
    total: Row = sum((of[t][user] for user, t in enumerate(rounds)), np.zeros(D, np.int64)) % Q
    return total


def judged(name: str, of: Mapping[int, Sequence[Row]]) -> list[Cell]:
    """All of one round cancel; one user with another t_i is enough that they do not."""
    cells = []
    for words, rounds, statement in (
        ("all t_i equal", [0] * N, "cancel"),
        ("one t_i differs", [0] * (N - 1) + [1], "do not cancel"),
        ("half of the t_i differ", [0, 1] * (N // 2), "do not cancel"),
    ):
        left = left_over(of, rounds)
        wrong = int(np.count_nonzero(left))
        mean = float(left.mean() / ((Q - 1) / 2))
        uniform = wrong and abs(mean - 1) <= UNIFORM
        ours = "cancel" if not wrong else "do not cancel" if uniform else "cancel in part"
        remark = f"{wrong} of {D} coordinates of the sum are not 0"
        remark += f"; their mean is {mean:.3f} of that of uniform elements" if wrong else ""
        cells.append(Cell(f"{name}, {words}", statement, ours, compare="order", remark=remark))
    return cells


def buffered() -> tuple[Result, Row]:
    """Return a result over updates of two versions, and the sum that it should be."""
    params = Params(d=D, q=Q, N=4, K=2, U=3, T=1, staleness_bound=2)
    ops, kind, streams = EagerOps(Q), PROTOCOLS["lightsecagg_async"](), Streams(ENTRY.seed)
    root, rng = streams.bytes("buffer"), streams.rng("updates")
    levels = {user: rng.integers(-1000, 1000, (1, D)) for user in range(4)}

    def made(update: UpdateId, version: int) -> Update:
        # A whole number of steps is not rounded, so the sum is known exactly.
        delta = (levels[update.user] / params.levels).astype(np.float32)
        return Update(Handle(1, D, F32, delta), 1, update, version)

    server = kind.server(range(4), params, ops, Entropy(root, SERVER))
    clients = {user: kind.client(user, params, ops, Entropy(root, user)) for user in range(4)}
    run = LoopbackBuffer(server, clients, made, kind.offline)
    run.settle()
    for begun, submitted in (((0, 1, 2), (1, 2)), ((3,), (3, 0))):  # user 0 trains on while a version passes
        for user in begun:
            run.begin(user)
            run.settle()
        for user in submitted:
            run.submit(user)
            run.settle()
    result = run.results[-1]
    total = np.sum([m.factor * levels[m.user] for m in result.members], axis=0) % Q
    return result, total[0]


def run(place: Place) -> Evidence:
    """SecAgg and SecAgg+, whose masks are left, and LightSecAgg, whose are not."""
    cells = []
    for protocol, name in (("secagg", "SecAgg"), ("secagg_plus", "SecAgg+")):
        cells += judged(name, {t: masks(protocol, t) for t in (0, 1)})
    result, total = buffered()
    statement = "recovered exactly"
    ours = statement if (result.total.content[0] == total).all() else "another sum"
    ages = ", ".join(f"user {m.user}: {m.staleness}" for m in result.members)
    cells.append(
        Cell("LightSecAgg, t_i differ", statement, ours, compare="order", remark=f"staleness {ages}")
    )
    # The algebra of the protocols: what fails here is a machine, not the paper.
    return Evidence(tuple(replace(cell, basis="by construction") for cell in cells))


ENTRY = Entry(
    name="lightsecagg_f2",
    paper="LightSecAgg",
    where="App. F.2",
    title="Masks of different rounds in one sum",
    on="the masks of the protocols' own machines, 8 users, 1,000 coordinates; a buffer of two updates",
    how="The text states that pairwise masks cancel where all t_i are equal and not where they differ. The"
    " rest must be zero, or like uniform elements of the field. LightSecAgg must recover the exact sum.",
    run=run,
)
