"""Changed conditions of our machines are found; those that are not are explained, and counted on a page."""

import re

import pytest

from tests.docs.pages import ROOT
from tests.studies.mutant_table import MUTANTS
from tests.studies.mutants import CASES, TRY, killed, plant

QUICK = [m for m in MUTANTS if m.killer == "explore" and m.case in ("secagg", "lightsecagg")][::3][:10]


def test_a_mutant_is_found_or_explained() -> None:
    assert len({(m.at, m.old, m.new) for m in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS:
        assert bool(mutant.killer) != bool(mutant.why), mutant.name


def test_the_page_has_the_score() -> None:
    page = " ".join((ROOT / "docs" / "privacy_evidence.md").read_text().split())
    (counts,) = re.findall(
        r"(\d+) of (\d+) mutants are found: (\d+) by `explore`, (\d+) by `proof`, (\d+) by a lying server",
        page,
    )
    by = {killer: sum(m.killer == killer for m in MUTANTS) for killer in TRY}
    assert [*map(int, counts)] == [sum(by.values()), len(MUTANTS), *by.values()]
    left = [m.why.partition(":")[0] for m in MUTANTS if not m.killer]
    for why, count in re.findall(r"\| (equivalent|not reached|other) \| (\d+) \|", page):
        known = ("equivalent", "not reached")
        found = sum(one == why if why in known else one not in known for one in left)
        assert found == int(count), why
    assert len(re.findall(r"\| (?:equivalent|not reached|other) \| \d+ \|", page)) == 3


@pytest.mark.ci
@pytest.mark.parametrize("mutant", QUICK, ids=lambda m: m.name)
def test_a_mutant_is_found_at_once(mutant, monkeypatch) -> None:
    with monkeypatch.context() as planted:
        plant(mutant, planted)
        assert TRY["explore"](mutant.case)
    assert not TRY["explore"](mutant.case, 0)  # the honest one keeps the invariants without losses


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_each_mutant_is_found_as_in_the_table(mutant, monkeypatch) -> None:
    assert killed(mutant, monkeypatch) == mutant.killer


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_searches_for_mutants_find_no_fault_in_our_protocols(case) -> None:
    assert not any(find(case) for find in TRY.values())
