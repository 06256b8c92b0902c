"""What is said of LightSecAgg's asynchronous figures, on runs made by hand; and a sum that really wraps."""

from __future__ import annotations

import pytest

from simfl.scenario.study import load_study
from simfl.simulation import run
from simfl.studies.papers import lightsecagg_fig11, lightsecagg_fig12
from simfl.studies.papers.entry import Place
from simfl.studies.papers.lightsecagg_fig12 import Run, cells
from tests.engine.harness import ROOT

BASE = "scenarios/async_buffer.yaml"
FEDBUFF = Run(0.95, 0, True)


@pytest.mark.parametrize(
    ("accuracies", "wrapped", "agree"),
    [
        ((0.90, 0.95, 0.1), (0, 0, 9), [True, True, True, True]),
        ((0.95, 0.90, 0.95), (0, 0, 9), [False, False, False, True]),
        ((0.90, 0.95, 0.1), (0, 9, 9), [True, True, True, False]),
    ],
)
def test_the_shape_of_figure_12(
    accuracies: tuple[float, ...], wrapped: tuple[int, ...], agree: list[bool]
) -> None:
    levels = {c: Run(a, w, True) for c, a, w in zip((4, 2**16, 2**28), accuracies, wrapped, strict=True)}
    assert [cell.agrees for cell in cells(FEDBUFF, levels)[:4]] == agree
    inexact = {**levels, 4: Run(0.9, 0, False)}
    assert [cells(FEDBUFF, runs)[4].agrees for runs in (levels, inexact)] == [True, False]


def test_figure_11_is_judged_by_pairs() -> None:
    finals = {"fedbuff": [0.9, 0.92], "lightsecagg_async": [0.91, 0.90]}
    finals |= {"fedbuff_poly": [0.95], "lightsecagg_async_poly": [0.9]}
    constant, polynomial = lightsecagg_fig11.cells(finals)
    assert (constant.agrees, polynomial.agrees) == (True, False)
    assert constant.remark == "0.9050 and 0.9100, means over 2 seeds; almost: within 0.01"


def test_the_study_goes_from_2_to_the_2_to_2_to_the_28() -> None:
    study = load_study(Place(ROOT).study("lightsecagg_fig12"))
    points = [{s.key: s.value for s in cell} for cell in study.cells]
    plain, *secure = points
    assert list(plain["protocols"]) == ["fedbuff"]
    assert [point["quantization.levels"] for point in secure] == [4**k for k in range(1, 15)]
    assert {tuple(point["protocols"]) for point in secure} == {("lightsecagg_async",)}


def test_wrapped_coordinates_are_counted_and_the_sum_is_exact_modulo_q() -> None:
    """As in the study's last cell, with a smaller model."""
    wrap = {"levels": 2**28, "clip": 8.0, "on_overflow": "wrap"}
    more = {"clock": "modelled", "rounds": 1, "learning.epochs": 5, "protocols": {"lightsecagg_async": {}}}
    found = lightsecagg_fig12.of(run(Place(ROOT).root / BASE, {"quantization": wrap, **more}).summary)
    assert found.exact
    assert found.wrapped > 100
