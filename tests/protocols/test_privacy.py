"""What coalitions hold says nothing about others' updates."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.crypto import field, mds, prg
from simfl.crypto.field import Q
from simfl.dataplane.ops import seed_array
from tests.crypto.oracles import inverse
from tests.protocols.harness import POINTS, Slow, lose_at, world
from tests.sizes import examples


@settings(max_examples=examples(15), deadline=None, derandomize=True)
@given(st.permutations(range(8)), st.integers(1, 3))
def test_any_T_shares_of_a_mask_fit_every_mask_equally_well(order, T):
    """The shares of T colluders are M z + N r with N invertible: for each z there is exactly one noise r,
    and the r that was used is the whole of its own stream."""
    U, d = 5, 6
    w = world("lightsecagg", 8, U=U, T=T, d=d)
    w.run()
    victim, colluders = order[-1], order[:T]
    shares = np.vstack(
        [w.clients[j].held_shares.content[w.clients[j].held_share_owners.index(victim)] for j in colluders],
    )
    W = mds.matrix(mds.points_of(tuple(colluders), Q), U, Q)
    N_inverse = inverse(W[:, U - T :], Q)
    m = mds.share_length(d + 1, U, T)

    def noise_behind(z):
        rows = np.zeros((U - T, m), np.uint32)
        rows.reshape(-1)[: d + 1] = z[0]
        rest = field.sub(shares, field.matmul(np.ascontiguousarray(W[:, : U - T]), rows, Q), Q)
        return field.matmul(N_inverse, rest, Q)

    entropy = w.entropies[victim]
    z = prg.expand(seed_array(entropy.peek("mask")), d + 1, Q)
    stream = prg.expand(seed_array(entropy.peek("noise")), T * m, Q).reshape(T, m)
    assert (noise_behind(z) == stream).all()
    other = (z.astype(np.uint64) + 1).astype(np.uint64) % np.uint64(Q)
    assert (noise_behind(other.astype(np.uint32)) != stream).any()


def test_masks_and_noise_of_all_users_are_different_streams():
    w = world("lightsecagg", 5, U=3, T=1)
    w.run()
    streams = [w.entropies[u].peek(name) for u in range(5) for name in ("mask", "noise", "quantise")]
    assert len(set(streams)) == 15


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(st.dictionaries(st.integers(0, 5), st.sampled_from(POINTS), max_size=4), st.sets(st.integers(0, 5)))
def test_a_secagg_server_sees_one_kind_of_share_of_each_user(points, tardy):
    w = world("secagg", 6, t=3)
    late = {u: p for u, p in points.items() if u in tardy}
    lost = {u: p for u, p in points.items() if u not in tardy}
    w.server = Slow(w.server, late)
    out = w.run(fate=lose_at(lost))
    kinds = {}
    for sender, _, m in out.sent:
        if m.kind == "answer":
            client = w.clients[sender]
            for k, user in enumerate(client.held_share_owners):
                row = m.content.content[k]
                b_half, s_half = np.split(client.held_shares.content[k], 2)
                kind = {(True, False): "b", (False, True): "s"}[(row == b_half).all(), (row == s_half).all()]
                kinds.setdefault(user, set()).add(kind)
    counted = w.server.survivors
    assert kinds == {user: {"b"} if user in counted else {"s"} for user in kinds}
    if out.result:
        assert set(kinds) == {u for u in w.clients if points.get(u) not in ("advertise", "shares")}


@pytest.mark.parametrize(("protocol", "params"), [("secagg", {"t": 2}), ("lightsecagg", {"U": 3, "T": 1})])
def test_an_upload_is_masked_in_every_coordinate(protocol, params):
    masked = []
    for seed in (0, 1):  # other keys and masks, the same update
        w = world(protocol, 4, seed=seed, d=40, **params)
        w.updates = world("fedavg", 4, seed=9, d=40).updates
        out = w.run()
        plain = w.updates[0].delta.content
        masked.append(next(m.masked.content[0] for s, _, m in out.sent if s == 0 and m.kind == "upload"))
        small = field.add(masked[-1][None], np.full((1, 41), 2**17, np.uint32), Q)
        assert np.count_nonzero(small < 2**18) <= 2  # a bare level would be within 2^17 of zero
    assert plain.shape == (1, 40)
    assert np.count_nonzero(masked[0] == masked[1]) <= 1


def test_pairwise_masks_cancel_only_among_all_who_uploaded():
    """Without its unmasking the sum of a SecAgg round is no sum of levels."""
    w = world("secagg", 4, t=2, d=40)
    out = w.run()
    raw = np.zeros((1, 41), np.uint32)
    for _, _, m in out.sent:
        if m.kind == "upload":
            raw = field.add(raw, m.masked.content, Q)
    assert np.count_nonzero(raw == out.result.total.content) <= 1
