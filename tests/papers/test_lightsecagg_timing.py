"""What the entries of LightSecAgg's timing tables and figures say of values that are known."""

from __future__ import annotations

import pytest

from papers import lightsecagg_figs, lightsecagg_gains, lightsecagg_table4
from papers.lightsecagg_testbed import PROTOCOLS, RATES, TABLE4


def column(p: float, overlap: bool) -> dict[str, dict[str, float]]:
    """The paper's own values."""
    return {
        name: {phase: s[RATES.index(p)] for phase, s in TABLE4[overlap][name].items()} for name in PROTOCOLS
    }


def test_a_cell_may_be_off_by_a_part_of_itself() -> None:
    for share, agrees in ((0.99, True), (1.01, False), (-1.01, False)):
        ours = column(0.3, True)
        ours["secagg"]["upload"] *= 1 + share * lightsecagg_table4.BOUND
        told = {cell.label: cell.agrees for cell in lightsecagg_table4.cells(ours, 0.3, True)}
        assert told.pop("overlapped, p = 30%: SecAgg, upload") is agrees
        assert False not in told.values()


def test_a_cell_of_table4_has_a_basis() -> None:
    def bases(p: float, overlap: bool) -> dict[str, str]:
        cells = lightsecagg_table4.cells(column(p, overlap), p, overlap)
        return {
            c.label.split(": ")[1].removeprefix("SecAgg, "): c.basis for c in cells if " SecAgg," in c.label
        }

    phases = ("offline", "training", "upload", "recovery")
    assert {bases(0.1, False)[phase] for phase in phases} == {"fitted"}
    assert bases(0.3, False) == {
        **dict.fromkeys((*phases, "total"), "by construction"), "training": "fitted", "recovery": "predicted"
    }  # fmt: skip
    assert bases(0.1, True)["offline"] == "fitted"  # of the link to the users
    assert bases(0.3, True)["offline"] == "by construction"  # p = 10 %'s again: U is the same
    assert bases(0.1, True)["upload"] == bases(0.3, True)["recovery"] == "by construction"  # the other half's


def test_fitted_constants_stand_with_their_cells() -> None:
    cells = {cell.label: cell for cell in lightsecagg_table4.fitted()}
    assert len(cells) == 10
    assert {cell.agrees for cell in cells.values()} == {None}
    assert "no cost of sharing" in cells["fitted: sharing"].remark
    assert "47.7 s" in cells["fitted: apply_element"].remark


def test_summed_shares_move_from_recovery_to_upload() -> None:
    upload, recovery = lightsecagg_table4.moved({"upload": 10.8, "recovery": 53.5}, 5.4, 0.5)
    assert (upload.ours, recovery.ours) == (pytest.approx(16.2), pytest.approx(48.1))
    assert upload.agrees is recovery.agrees is None
    assert "-25 %, and -50 % as counted" in upload.remark


def test_totals_that_do_not_add_up_are_shown_and_not_judged() -> None:
    told = {}
    for p in RATES:
        for overlap in (False, True):
            for cell in lightsecagg_table4.cells(column(p, overlap), p, overlap):
                if cell.label.endswith("total"):
                    told[cell.label] = cell
    odd = {label.replace("overlapped, p = ", "") for label, cell in told.items() if cell.agrees is None}
    assert odd == {
        "non-10%: SecAgg, total", "non-50%: SecAgg, total", "10%: SecAgg, total",
        "non-10%: SecAgg+, total", "non-50%: SecAgg+, total", "10%: LightSecAgg, total",
    }  # fmt: skip
    assert "add up to 1040.5 s" in told["non-overlapped, p = 10%: SecAgg, total"].remark
    assert {cell.agrees for cell in told.values()} == {None, True}


def test_another_order_of_the_protocols_is_not_as_stated() -> None:
    ours = column(0.1, True)
    ours["secagg_plus"]["total"] = 1.0
    *_, order = lightsecagg_table4.cells(ours, 0.1, True)
    assert (order.paper, order.agrees) == ("LightSecAgg < SecAgg+ < SecAgg", False)
    assert order.ours == "SecAgg+ < LightSecAgg < SecAgg"


def test_the_papers_gains_are_those_of_its_table4() -> None:
    """Table 2's row of the CNN and Table 3's of 320 Mbit/s are Table 4's columns at p = 30 %."""
    alone, together = column(0.3, False), column(0.3, True)
    _, printed = lightsecagg_gains.TABLE2["femnist_cnn"]
    totals = {name: s["total"] for name, s in alone.items()}
    aggregation = {name: s["total"] - s["training"] for name, s in alone.items()}
    overlapped = {name: s["total"] for name, s in together.items()}
    for seconds, gains in zip((totals, overlapped, aggregation), printed, strict=True):
        assert lightsecagg_gains.gains(seconds) == pytest.approx(gains, abs=0.06)
    assert lightsecagg_gains.gains(overlapped) == pytest.approx(lightsecagg_gains.TABLE3[320], abs=0.06)


def test_a_row_of_gains_names_its_source_and_order() -> None:
    ours = dict.fromkeys(lightsecagg_gains.KINDS, (13.0, 4.0))
    *cells, order = lightsecagg_gains.cells("logistic", ours, 0.93)
    assert [cell.paper for cell in cells] == [6.7, 2.5, 8.0, 2.9, 13.0, 4.1]
    assert [bool(cell.remark) for cell in cells] == [True, *[False] * 5]
    assert [cell.basis for cell in cells] == [
        "fitted", *["predicted"] * 3, *["by construction"] * 2
    ]  # fmt: skip
    *cells, _ = lightsecagg_gains.cells("femnist_cnn", ours, 22.8)
    assert {cell.basis for cell in cells} == {"by construction"}  # Table 4's totals
    assert order.agrees
    *_, order = lightsecagg_gains.cells("logistic", {**ours, "overlapped": (13.0, 0.9)}, 0.93)
    assert order.agrees is False


def curves() -> lightsecagg_figs.Curves:
    """Times that rise with N and p, LightSecAgg's the least."""
    return {
        (overlap, name, p): {N: factor * N * (1 + p) for N in (50, 200)}
        for overlap in (False, True)
        for factor, name in enumerate(("lightsecagg", "secagg_plus", "secagg"), 1)
        for p in RATES
    }


def test_statements_on_a_figure_are_judged() -> None:
    assert all(cell.agrees for cell in lightsecagg_figs.cells(curves()))
    flat = curves()
    flat[True, "secagg", 0.3] = flat[True, "secagg", 0.1]
    wrong = [cell.label for cell in lightsecagg_figs.cells(flat) if not cell.agrees]
    assert wrong == ["overlapped: SecAgg against the drop-out rate"]
    swapped = curves()
    swapped[False, "lightsecagg", 0.5] = {50: 1.0, 200: 1e6}
    wrong = [cell.label for cell in lightsecagg_figs.cells(swapped) if not cell.agrees]
    assert wrong == ["non-overlapped: order at N = 200, p = 50%"]


def test_growth_is_judged_against_the_square() -> None:
    told = {cell.label: cell for cell in lightsecagg_figs.growth(curves())}
    assert len(told) == 9
    linear = told["SecAgg's recovery, p = 10%: exponent of N"]
    assert (linear.paper, linear.ours, linear.agrees) == (2.0, pytest.approx(1.0, abs=1e-3), False)
    square = {key: {N: N * s for N, s in curve.items()} for key, curve in curves().items()}
    assert {cell.agrees for cell in lightsecagg_figs.growth(square)} == {True, None}


def test_a_chart_has_the_lines_of_one_half() -> None:
    chart = lightsecagg_figs.chart(curves(), overlap=True)
    assert len(chart.lines) == 9
    assert chart.lines[0].name == "LightSecAgg, p = 10%"
    assert chart.lines[0].x == (50.0, 200.0)
    assert chart.lines[0].y == pytest.approx((55.0, 220.0))
