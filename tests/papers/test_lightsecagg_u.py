"""What is said of a sweep over U, on curves made by hand."""

from __future__ import annotations

from papers import lightsecagg_u
from papers.entry import Place
from papers.lightsecagg_u import cells
from simfl.scenario.study import load_study
from tests.engine.harness import ROOT


def curve(**totals: float) -> lightsecagg_u.Curve:
    return {int(U[1:]): {"total": s, "recovery": s / 2} for U, s in totals.items()}


def test_the_best_u_and_the_cost_of_the_papers_u() -> None:
    told = cells(
        {
            0.1: curve(U110=200, U140=101, U150=100, U180=103),
            0.3: curve(U110=201, U140=102),
            0.495: curve(U101=99),
        },
        200,
    )
    best, beside, best_3, beside_3, recovery, first, order, same, *supposed = told
    assert (best.ours, best.agrees) == (0.75, True)
    assert (beside.ours, beside.agrees) == (1.01, None)
    assert beside.remark == "U from 140 to 150 are within 2 % of the least"
    assert best_3.remark.startswith("102.0 s at U = 140 (the largest), ")
    assert "largest" not in best.remark
    assert (best_3.ours, beside_3.ours) == (0.7, 1.0)
    assert recovery.ours == 0.75
    assert (first.paper, first.ours) == ("p = 0.3", "p = 0.5")
    assert order.agrees is False
    assert same.ours == 101 / 102
    # 140 x 340 coefficients at 73 us are 3.47 s, 150 x 350 are 3.83 s, and 6.19 and 6.83 s at 130 us
    assert [cell.ours for cell in supposed] == [0.75, 0.75]
    assert supposed[0].remark == "103.8 s at U = 150, 104.5 s at U = 140"
    assert supposed[1].remark == "106.8 s at U = 150, 107.2 s at U = 140"
    assert [cell.agrees for cell in supposed] == [None, None]


def test_the_study_goes_from_t_to_n_minus_d() -> None:
    study = load_study(Place(ROOT).study("lightsecagg_u"))
    points = [{s.key: s.value for s in cell} for cell in study.cells]
    ranges: dict[float, list[int]] = {}
    for point in points:
        privacy = point["privacy"]
        assert privacy["T"] < privacy["U"] <= 200 - privacy["D"]
        ranges.setdefault(point["dropout"]["rate"], []).append(privacy["U"])
    assert {rate: (us[0], us[-1]) for rate, us in ranges.items()} == {
        0.1: (101, 180),
        0.3: (101, 140),
        0.495: (101, 101),
    }
