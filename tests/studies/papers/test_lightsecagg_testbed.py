"""The fitted profile against the cells of LightSecAgg's Table 4: those that it has seen, and the others."""

from __future__ import annotations

import pytest

import simfl
from simfl import profiles
from simfl.studies.papers import fit_table4
from simfl.studies.papers.lightsecagg_testbed import PROTOCOLS, RATES, TABLE4, breakdown, settings
from tests.engine.harness import ROOT, run

SCENARIO = ROOT / "scenarios" / "papers" / "lightsecagg.yaml"


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_table4_as_it_is_typed_in_adds_up(name: str, overlap: bool) -> None:
    table = TABLE4[overlap][name]
    for column in range(len(RATES)):
        total = sum(cells[column] for phase, cells in table.items() if phase != "total")
        assert table["total"][column] == pytest.approx(total, rel=0.06)  # the overlapped half does not quite


@pytest.mark.parametrize(
    ("p", "overlap"),
    [
        (0.1, False),
        (0.1, True),
        *(pytest.param(p, ov, marks=pytest.mark.slow) for p in RATES[1:] for ov in (False, True)),
    ],
)
def test_the_profile_meets_what_it_was_fitted_to_within_5_percent_and_the_rest_within_10(
    p: float, overlap: bool
) -> None:
    result = simfl.run(SCENARIO, settings(p, overlap))
    bound = 0.05 if p in fit_table4.SEEN and not overlap else 0.1
    far = {
        (name, phase): part
        for name, phase, part in fit_table4.differences(result, p, overlap)
        if abs(part) > bound
    }
    assert not far
    for phase in ("recovery", "total"):
        ours = {name: breakdown(result, name)[phase] for name in PROTOCOLS}
        paper = {name: TABLE4[overlap][name][phase][RATES.index(p)] for name in PROTOCOLS}
        assert sorted(ours, key=ours.__getitem__) == sorted(paper, key=paper.__getitem__)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_breakdown_adds_up_to_the_round_and_its_phases_end_when_the_last_is_done(overlap: bool) -> None:
    result = run({"protocols": ["lightsecagg"], "overlap": overlap})
    parts, (found,) = breakdown(result, "lightsecagg"), result.rounds["lightsecagg"]
    total = parts.pop("total")
    assert total == pytest.approx((found.end - found.start) / 1e9, abs=1e-9)
    assert sum(parts.values()) == pytest.approx(total)
    assert ("training" in parts) is not overlap
    if not overlap:
        assert parts["offline"] == pytest.approx(found.span["offline"] / 1e9)  # it begins with the round


def test_a_round_that_comes_to_nothing_has_no_breakdown() -> None:
    result = run({"protocols": ["secagg"], "dropout": {"kind": "rate", "rate": 1.0}})
    with pytest.raises(ValueError, match="users answered, 2 needed"):
        breakdown(result, "secagg")


def test_the_profile_that_is_shipped_is_the_reference_with_the_fitted_rates() -> None:
    shipped, reference = (profiles.load(name).seconds for name in ("lightsecagg_table4", "reference"))
    changed = {kind for kind, rate in shipped.items() if rate != reference[kind]}
    assert changed == set(fit_table4.START) - {"training"}
