"""Faults of privacy are found, four of which keep all invariants of sums; so is reuse over rounds."""

from dataclasses import replace

import pytest

from simfl.privacy.leaks.coalitions import coalitions_of
from simfl.privacy.leaks.invariants import Leak
from simfl.protocols.lightsecagg import LightSecAggClient
from simfl.protocols.pairwise_masks import SecAggClient
from simfl.studies.explore import invariants
from simfl.studies.explore.cohort import fate_of
from simfl.studies.proof.patterns import Report, make_small
from tests.privacy.leaks import faults
from tests.privacy.leaks.faults import plant, reuses
from tests.studies.explore.faults import AsksForBoth, StaleSurvivors, TwoSums

LETTERS = {"secagg": {"t": 3}, "lightsecagg": {"U": 3}}
PROMISED = {"secagg": 2, "lightsecagg": 1}


def swept(protocol, client, server=None, most=1, rounds=1, sizes=None, wanted=Leak):
    """The first finding of this sort in a faulty machine."""
    small, report = make_small(protocol, 4, changes=LETTERS[protocol]), Report()
    setup = replace(small.setup, kind=plant(small.setup.kind, client, server))
    small.cohort.__dict__["short"] = setup
    coalitions = coalitions_of(4, range(PROMISED[protocol] + 1) if sizes is None else sizes)
    for detect in small.cohort.detects:
        cases = small.rounds(detect, most) if rounds == 1 else small.two_rounds(detect, most)
        for case, seen in cases:
            report.look(case, seen, coalitions)
            found = [found for found in report.first.values() if isinstance(found.violation, wanted)]
            if found:
                return found[0]
    return None


SILENT = [
    ("secagg", faults.OneKeyForAll, 0, 1),
    ("secagg", faults.FlatPolynomial, 2, 0),
    ("lightsecagg", faults.MaskIsNoise, 1, 0),
    ("lightsecagg", faults.NoNoise, 1, 0),
]


@pytest.mark.parametrize(("protocol", "client", "colluders", "losses"), SILENT)
def test_a_fault_that_keeps_the_invariants_of_sums_leaks(protocol, client, colluders, losses) -> None:
    found = swept(protocol, client)
    assert (len(found.coalition), found.case.losses) == (colluders, losses)


@pytest.mark.ci
@pytest.mark.parametrize(("protocol", "client"), [case[:2] for case in SILENT])
def test_its_sums_are_right_under_every_loss_of_one(protocol, client, monkeypatch) -> None:
    """The invariants of sums, ends, haste and honesty hold: only a view shows these faults."""
    cohort = make_small(protocol, 4, changes=LETTERS[protocol]).cohort
    kind = cohort.kind
    monkeypatch.setattr(
        type(kind), "client", lambda self, user, p, ops, entropy: client(user, p, ops, entropy)
    )
    for detect in cohort.detects:
        for lost in range(cohort.users):
            for fate in cohort.fates(detect):
                pattern = tuple(fate if user == lost else None for user in range(cohort.users))
                seen = cohort.observe(fate_of(pattern, detect))
                wanted = cohort.expected(pattern, seen.graph, seen.committee)
                life = invariants.of_end(seen.members, seen.out.reason, wanted)
                assert [*life, *invariants.of_itself(seen)] == []


@pytest.mark.ci(but=["lightsecagg"])
@pytest.mark.parametrize(
    ("protocol", "client", "server", "colluders", "losses"),
    [
        ("secagg", faults.NoPrivateSeed, None, 0, 1),
        ("secagg", faults.BothKinds, faults.TakesMoreShares, 0, 0),
        ("lightsecagg", faults.AnswersOneByOne, faults.TakesMore, 0, 0),
        ("lightsecagg", faults.PublicSeed, None, 0, 0),
        ("lightsecagg", LightSecAggClient, StaleSurvivors, 0, 1),
        ("lightsecagg", LightSecAggClient, TwoSums, 0, 0),
        ("secagg", SecAggClient, AsksForBoth, 2, 1),
    ],
)
def test_a_fault_leaks(protocol, client, server, colluders, losses) -> None:
    found = swept(protocol, client, server, sizes=[colluders])
    assert (len(found.coalition), found.case.losses) == (colluders, losses)


def test_a_seed_from_public_bytes_is_known() -> None:
    proof = str(swept("lightsecagg", faults.PublicSeed).violation)
    assert "less PRG(the constant " in proof
    assert proof.endswith("known to all")


@pytest.mark.parametrize(
    ("client", "server", "says"),
    [
        (faults.NonceTwice, faults.TakesMore, "sealed two rows under nonce 00000000"),
        (faults.SeedForMaskAndRounding, None, "is used for a mask and for rounding"),
    ],
)
def test_reuse_within_a_round_is_found(client, server, says) -> None:
    found = swept("lightsecagg", client, server, wanted=str)
    assert says in str(found.violation)
    assert (found.coalition, found.case.losses) == ((), 0)


# --- over rounds ------------------------------------------------------------------------------------
@pytest.mark.ci
@pytest.mark.parametrize(
    ("protocol", "names", "colluders", "losses"),
    [
        ("lightsecagg", ["mask"], 0, 0),
        ("lightsecagg", ["noise"], 1, 0),
        ("secagg", ["mask key"], 0, 0),
        ("secagg", ["private seed"], 0, 1),
        ("secagg", ["share coefficients"], 1, 1),
    ],
)
def test_secrets_drawn_once_for_two_rounds_leak(protocol, names, colluders, losses) -> None:
    machine = {"lightsecagg": LightSecAggClient, "secagg": SecAggClient}[protocol]
    found = swept(protocol, reuses(machine, *names), rounds=2)
    assert (len(found.coalition), found.case.losses) == (colluders, losses)
    assert swept(protocol, reuses(machine, *names)) is None  # one round alone shows nothing


@pytest.mark.parametrize(
    ("protocol", "machine"), [("lightsecagg", LightSecAggClient), ("secagg", SecAggClient)]
)
def test_a_channel_key_of_two_rounds_is_a_nonce_used_twice(protocol, machine) -> None:
    found = swept(protocol, reuses(machine, "channel key"), rounds=2, wanted=str)
    assert "sealed two rows under nonce" in str(found.violation)


@pytest.mark.ci
@pytest.mark.parametrize("protocol", ["lightsecagg", "secagg"])
def test_two_honest_rounds_tell_two_sums(protocol) -> None:
    machine = {"lightsecagg": LightSecAggClient, "secagg": SecAggClient}[protocol]
    assert swept(protocol, machine, rounds=2) is None


def test_masks_that_can_be_foretold_over_rounds_leak(monkeypatch) -> None:
    monkeypatch.setattr(faults.Remembered, "masks", {})
    assert swept("lightsecagg", faults.Remembered, most=0) is None
    monkeypatch.setattr(faults.Remembered, "masks", {})
    found = swept("lightsecagg", faults.Remembered, rounds=2)
    assert found.coalition == ()
