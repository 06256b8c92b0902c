"""CCESA's entries: rounds really run, and ratios of times made by hand."""

from __future__ import annotations

from math import exp
from types import SimpleNamespace

import pytest

from papers import ccesa_fig4, ccesa_table1, ccesa_table_g2
from papers import ccesa_table2 as table
from papers.entry import Place
from papers.exponents import Grid, parts
from simfl.protocols.graph_design import step_rate
from simfl.random_streams import Streams
from tests.engine.harness import ROOT


def test_parameters_are_those_of_table_2() -> None:
    """p and t as printed."""
    cells = [cell for n, q_total in table.SA for cell in table.designed(n, q_total)]
    assert len(cells) == 18
    assert all(cell.agrees for cell in cells)
    assert [(cell.paper, cell.ours) for cell in cells[-3:-1]] == [(251, 251), (133, 133)]


@pytest.mark.ci
def test_a_small_round_is_really_run() -> None:
    """Without losses the server expands the masks of its n users only; each step takes time."""
    times = table.timed("secagg", 10, 0.0, range(1, 2))
    assert times.masks == 10
    assert set(times.steps) == set(table.STEPS)
    assert min(*times.steps.values(), times.server) > 0


@pytest.mark.ci
def test_lost_users_cost_a_mask_of_each_survivor() -> None:
    """One of 10 is lost, before its upload: 9 own masks, and 9 pairwise ones."""
    seed = next(s for s in range(1000) if _only_one_lost_before_its_upload(s))
    assert table.timed("secagg", 10, 0.2, range(seed, seed + 1)).masks == 9 + 9


def _only_one_lost_before_its_upload(seed: int) -> bool:
    draws = Streams(seed).rng("losses").random((10, 4)) < step_rate(0.2)
    return bool(draws[:, 2].sum() == 1 == draws.sum())


def test_times_are_held_against_the_printed_and_p() -> None:
    """At n = 300 and 10 % lost, p = 0.5136, and the printed ratios are 1, 0.512, 0.507, 0.443 and 0.509."""
    sa = table.Times(dict.fromkeys(table.STEPS, 10.0), 100.0, 50.0)
    steps = {"step 0": 10.0, "step 1": 5.2, "step 2": 7.0, "step 3": 5.5}
    ccesa = table.Times(steps, 90.0, 26.0)
    cells = table.ratios(300, 0.1, sa, ccesa)
    told = {cell.label.partition(": ")[2]: (cell.ours, cell.agrees) for cell in cells}
    assert told == {
        "client, step 0, as printed": (1.0, True), "client, step 0, p": (1.0, False),
        "client, step 1, as printed": (0.52, True), "client, step 1, p": (0.52, True),
        "client, step 2, as printed": (0.7, False), "client, step 2, p": (0.7, False),
        "client, step 3, as printed": (0.55, False), "client, step 3, p": (0.55, True),
        "server, recovery, as printed": (0.9, False), "server, recovery, p": (0.9, False),
        "server, masks expanded": (0.52, None),
    }  # fmt: skip
    assert "5382 / 10502 ms" in cells[2].remark
    nobody_lost = [cell.label.partition(": ")[2] for cell in table.ratios(300, 0.0, sa, ccesa) if cell.bound]
    assert nobody_lost == [label for label in told if label != "server, masks expanded"]


def test_accuracies_are_judged_by_paired_seeds() -> None:
    """p* loses 0.002 in each of three seeds; 0.8 p* about 0.02; 0.7 p* has no model in one; 0.6 p* varies."""
    finals = {
        "secagg": (0.95, 0.90, 0.92), "ccesa": (0.948, 0.898, 0.918), "ccesa_08": (0.93, 0.881, 0.899),
        "ccesa_07": (0.95, 0.90, None), "ccesa_06": (0.95, 0.87, 0.92),
    }  # fmt: skip
    rounds = [{"status": "completed", "accuracy": 0.9}, {"status": "aborted", "accuracy": None}]
    runs = [
        {name: {"final_accuracy": values[seed], "rounds": rounds} for name, values in finals.items()}
        for seed in range(3)
    ]
    cells = ccesa_fig4.cells(ccesa_fig4.FIG_4, "IID", runs)
    assert [cell.agrees for cell in cells] == [None, True, False, None, None]
    assert [cell.ours for cell in cells[1:]] == [
        ccesa_fig4.SAID, ccesa_fig4.LESS, ccesa_fig4.NONE, ccesa_fig4.OPEN
    ]  # fmt: skip
    assert (
        cells[1].remark == "accuracy 0.921, difference to SA -0.002±0.000; 3 of 6 rounds completed, 3 seeds"
    )
    assert cells[3].remark == "under 1 of 3 seeds; 3 of 6 rounds completed"


def test_a_p_without_a_model_has_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of its rounds completes."""
    good = {"final_accuracy": 0.9, "rounds": [{"status": "completed", "accuracy": 0.9}]}
    bad = {"final_accuracy": None, "rounds": [{"status": "aborted", "accuracy": None}]}
    summary = {"protocols": dict.fromkeys(ccesa_fig4.FIG_B1.names, good) | {"ccesa_06": bad}}
    point = {"dropout": "none"}
    monkeypatch.setattr(
        ccesa_fig4, "summaries", lambda study, place: [(point, SimpleNamespace(summary=summary))] * 2
    )
    evidence = ccesa_fig4.run(ccesa_fig4.FIG_B1, Place(ROOT))
    assert [line.name for line in evidence.charts[0].lines] == ["SA", "CCESA, p = 0.8", "CCESA, p = 0.7"]
    assert [cell.ours for cell in evidence.cells[1:]] == [ccesa_fig4.SAID, ccesa_fig4.SAID, ccesa_fig4.NONE]


def test_five_cells_of_table_g2_are_not_eq_5_rounded() -> None:
    cells = ccesa_table_g2.run_g2(Place(ROOT)).cells
    assert [cell.label for cell in cells if not cell.agrees] == [
        "p*, n = 400, q_total = 0.01",
        "p*, n = 800, q_total = 0.01",
        "p*, n = 600, q_total = 0.05",
        "p*, n = 800, q_total = 0.05",
        "p*, n = 300, q_total = 0.1",
    ]
    assert all(cell.agrees == (round(float(cell.ours or 0), 3) == cell.paper) for cell in cells)


def test_reliability_is_the_factor_in_the_exponent() -> None:
    """Theorem 5's bound of SA is n exp(-(n - 1) D(1/2 || 0.9)) with D = ln(5/3) = 0.511."""
    _, sa, _ = ccesa_table1.bounds()
    assert sa.ours == pytest.approx(0.511, abs=1e-3)
    assert not sa.agrees
    tenth = [n * exp(-n / 10) for n in ccesa_table1.USERS]
    assert ccesa_table1.reliability("x", lambda n: n / 10, tenth).agrees


def test_the_factor_of_m_at_128_clients() -> None:
    """Twelve of 128 are lost: SA's server folds 115 uploads into the first, and expands and takes off 116 own
    masks and 12 x 116 pairwise ones; its result is unquantised. FedAvg's multiplies 116 and divides once."""
    slopes = {
        protocol: parts(
            Grid(ccesa_table1.USERS, ccesa_table1.LENGTHS, ccesa_table1.counted, ccesa_table1.PROTOCOLS),
            ccesa_table1.computation_server,
            protocol,
            128,
        )[0]
        for protocol in ("secagg", "fedavg")
    }
    assert slopes == {"secagg": 115 + 2 * (116 + 12 * 116) + 1, "fedavg": 117}
