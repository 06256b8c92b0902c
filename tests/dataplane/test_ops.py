"""Real and shadow data planes: one control flow, one ledger; the real one does the work."""

import pytest

from simfl.crypto import keys, ntt, prg
from simfl.crypto.field import Q
from tests.protocols.buffers import Buffers
from tests.protocols.harness import (
    CountingEager,
    CountingShadow,
    Ledger,
    Slow,
    lose_at,
    work_of,
    world,
)

PROTOCOLS = {
    "fedavg": {},
    "secagg": {"t": 4},
    "lightsecagg": {"T": 2, "U": 4},
}
FATES = {
    "nobody": ({}, {}),
    "lost": ({0: "advertise", 3: "upload"}, {}),
    "late": ({5: "shares"}, {2: "upload", 6: "recovery"}),
    "aborted": (dict.fromkeys(range(4), "upload"), {}),
}


def ledgered(protocol, ops, fate, n=8):
    lost, late = FATES[fate]
    w = world(protocol, n, ops=ops, d=6, **PROTOCOLS[protocol])
    steps = []
    w.server = Ledger(Slow(w.server, late), ops, -1, steps)
    w.clients = {u: Ledger(c, ops, u, steps) for u, c in w.clients.items()}
    return w.run(fate=lose_at(lost)), steps


def seen(out):
    """All that a shadow run can know of a round."""
    members = out.result and [(m.user, m.factor) for m in out.result.members]
    sizes = out.result and (out.result.total.size_bytes, out.result.mean.size_bytes)
    messages = [(s, to, m.kind, m.phase, m.point, m.size_bytes) for s, to, m in out.sent]
    return messages, members, sizes, out.reason, out.gave_up, out.ignored, out.refused


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_shadow_charges_the_same_and_runs_no_kernel(protocol, fate):
    eager, shadow = CountingEager(Q), CountingShadow(Q)
    out, steps = ledgered(protocol, eager, fate)
    shadowed, shadow_steps = ledgered(protocol, shadow, fate)
    assert seen(out) == seen(shadowed)
    assert steps == shadow_steps
    assert not shadow.ran
    if protocol != "fedavg":
        assert eager.ran["agree"] > 0
    if out.result:
        assert shadowed.result.total.content is None
        assert out.result.total.content is not None


def test_shadow_of_a_buffered_run_takes_the_same_course():
    courses = []
    for ops in (CountingEager(Q), CountingShadow(Q)):
        run = Buffers("lightsecagg_async", 6, seed=3, ops=ops, K=3, U=4, T=1, staleness_bound=2)
        if isinstance(ops, CountingShadow):
            run.check = lambda result: None  # there is nothing to check
        run.play(600, losses=0.02, late=0.01, keep=4)
        courses.append(([r.members for r in run.results], run.ignored, run.refused, run.aborts))
    assert courses[0] == courses[1]
    assert len(courses[0][0]) > 3
    assert not ops.ran


@pytest.mark.parametrize("protocol", ["secagg", "lightsecagg"])
@pytest.mark.parametrize("n", [6, 12])
def test_every_key_share_and_mask_is_really_made(protocol, n, monkeypatch):
    calls = {"agreed": 0, "sealed": 0, "opened": 0, "expanded": 0}
    hkdf, stream_of, aes = keys.hkdf, prg.stream_of, keys.AESGCM

    class Aes:
        def __init__(self, key):
            self.aes = aes(key)

        def encrypt(self, *args):
            calls["sealed"] += 1
            return self.aes.encrypt(*args)

        def decrypt(self, *args):
            calls["opened"] += 1
            return self.aes.decrypt(*args)

    def counted(name, function):
        def call(*args):
            calls[name] += 1
            return function(*args)

        return call

    monkeypatch.setattr(keys, "AESGCM", Aes)
    monkeypatch.setattr(keys, "hkdf", counted("agreed", hkdf))
    monkeypatch.setattr(prg, "stream_of", counted("expanded", stream_of))
    ops = CountingEager(Q)
    out, steps = ledgered(protocol, ops, "nobody", n)
    pairs = n * (n - 1)
    assert out.result
    assert calls["sealed"] == calls["opened"] == pairs
    assert calls["agreed"] == (2 * pairs if protocol == "secagg" else pairs)
    # LightSecAgg: a mask and its noise a user; SecAgg: coefficients and n seeds a user, and n to unmask
    assert calls["expanded"] == (n * n + 2 * n if protocol == "secagg" else 2 * n)
    work = work_of(steps)
    assert work["agree"] == ops.rows["agree"] == calls["agreed"]
    assert work["x25519"] == ops.ran["public"] == (2 * n if protocol == "secagg" else n)
    assert work["aead_item"] == ops.rows["seal"] + ops.rows["open_"] == 2 * pairs
    if protocol == "secagg":
        assert (ops.rows["share"], ops.rows["reconstruct_many"]) == (n * n, n)
    else:
        assert (ops.rows["encode"], ops.ran["decode"]) == (n * n, 1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_work_is_charged_to_the_phase_that_asks_for_it(protocol):
    _, steps = ledgered(protocol, CountingEager(Q), "nobody")
    phases = {}
    for _, _, segments in steps:
        for phase, work in segments:
            phases.setdefault(phase, set()).update(work)
    assert phases["recovery"] >= ({"real_mac"} if protocol == "fedavg" else {"quantise_element"})
    if protocol != "fedavg":
        assert phases["offline"] >= {"x25519", "agree", "aead_item", "aead_byte", "prg_element"}
        assert phases["upload"] >= {"quantise_element", "field_add"}
        assert not phases["upload"] & {"agree", "aead_item", "mds_mac", "shamir_mac"}
    if protocol == "secagg":
        assert phases["recovery"] >= {"shamir_mac", "lagrange_pair", "prg_element"}
    if protocol == "lightsecagg":
        assert phases["recovery"] >= {"mds_mac", "mds_element", "mds_inverse"}
        assert "prg_element" not in phases["recovery"] | phases["upload"]
        assert "mds_coefficient" not in phases["recovery"]


@pytest.mark.parametrize(("q", "coding"), [(Q, 8 * 4), (ntt.Q, 0)])
def test_coefficients_are_counted_in_coding_and_decoding(q, coding):
    """8 users code for 8 points with U = 4; the server inverts a 4 x 4 matrix."""
    _, steps = ledgered("lightsecagg", CountingShadow(q), "nobody")
    found = {}
    for party, _, segments in steps:
        for phase, work in segments:
            if amount := work.get("mds_coefficient", 0) + work.get("mds_inverse", 0):
                found[party, phase] = found.get((party, phase), 0) + amount
    users = {(user, "offline"): coding for user in range(8)} if coding else {}
    assert found == {**users, (-1, "recovery"): 16}


@pytest.mark.parametrize("protocol", ["secagg", "lightsecagg"])
def test_recovery_work_of_lightsecagg_does_not_grow_with_losses(protocol):
    def recovery(fate):
        _, steps = ledgered(protocol, CountingShadow(Q), fate)
        server = [s for s in steps if s[0] == -1]
        work = work_of([(p, c, [x for x in segments if x[0] == "recovery"]) for p, c, segments in server])
        return work["agree"] + work["prg_element"] + work["mds_mac"]

    grows = recovery("lost") > recovery("nobody")
    assert grows == (protocol == "secagg")


@pytest.mark.parametrize("protocol", ["secagg", "lightsecagg"])
def test_sizes_on_the_wire_are_those_of_the_content(protocol):
    out, _ = ledgered(protocol, CountingEager(Q), "nobody")
    for _, _, message in out.sent:
        for name in ("publics", "sealed", "masked", "content"):
            handle = getattr(message, name, None)
            if handle is not None:
                assert handle.content.shape == (handle.rows, handle.columns)
                assert handle.content.nbytes == handle.size_bytes <= message.size_bytes


@pytest.mark.parametrize("protocol", ["secagg", "lightsecagg"])
def test_work_by_row_is_counted(protocol):
    """Of 8 users one never uploads: 8 share; SecAgg reconstructs 8 secrets, LightSecAgg decodes once."""
    lost = {3: "upload"}
    ops = CountingShadow(Q)
    w = world(protocol, 8, ops=ops, d=6, **PROTOCOLS[protocol])
    steps = []
    w.server = Ledger(w.server, ops, -1, steps)
    w.clients = {u: Ledger(c, ops, u, steps) for u, c in w.clients.items()}
    out = w.run(fate=lose_at(lost))
    assert out.result is not None
    work = work_of(steps)
    assert work["sharing"] == 8
    assert work["step"] == len(steps)
    if protocol == "secagg":
        assert (work["secret"], work["decoding"]) == (8, 0)
        # a user masks with 7 pairwise seeds and its own, and draws its Shamir coefficients; the server
        # takes off 7 private masks and those of the lost user with 7 others; all 8 quantise by a seed
        assert work["prg_seed"] == 8 * (8 + 1) + 7 + 7 + 8
    else:
        assert (work["secret"], work["decoding"]) == (0, 1)
        assert work["prg_seed"] == 8 * (2 + 1)  # a mask, its noise and that of quantising each
    assert work["call"] >= work["step"] / 2
