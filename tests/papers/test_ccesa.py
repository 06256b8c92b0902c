"""CCESA's entries: rounds really run, and ratios of times made by hand."""

from __future__ import annotations

from papers import ccesa_table1, ccesa_table_g2
from papers import ccesa_table2 as table
from papers.entry import Place
from papers.exponents import Grid, parts
from simfl.protocols.graph_design import step_rate
from simfl.random_streams import Streams
from tests.engine.harness import ROOT


def test_parameters_are_those_of_table_2() -> None:
    """p and t as printed."""
    assert {(n, q): (round(p.p, 4), p.t) for n, q in table.SA if (p := table.parameters("ccesa", n, q))} == {
        (100, 0.0): (0.6362, 43), (100, 0.1): (0.7953, 51), (300, 0.0): (0.4109, 83), (300, 0.1): (0.5136, 98)
    }  # fmt: skip
    assert table.parameters("secagg", 100, 0.1).t == 51
    assert table.parameters("secagg", 300, 0.0).t == 151


def test_a_small_round_is_really_run() -> None:
    """Without losses the server expands the masks of its n users only; each step takes time."""
    times = table.timed("secagg", 10, 0.0, range(1, 2))
    assert times.masks == 10
    assert set(times.steps) == set(table.STEPS)
    assert min(*times.steps.values(), times.server) > 0


def test_lost_users_cost_a_mask_of_each_survivor() -> None:
    """One of 10 is lost, before its upload: 9 own masks, and 9 pairwise ones."""
    seed = next(s for s in range(1000) if _only_one_lost_before_its_upload(s))
    assert table.timed("secagg", 10, 0.2, range(seed, seed + 1)).masks == 9 + 9


def _only_one_lost_before_its_upload(seed: int) -> bool:
    draws = Streams(seed).rng("losses").random((10, 4)) < step_rate(0.2)
    return bool(draws[:, 2].sum() == 1 == draws.sum())


def test_ratios_are_held_against_p() -> None:
    sa = table.Times({"step 1": 10.0, "step 2": 10.0}, 100.0, 50.0)
    ccesa = table.Times({"step 1": 5.2, "step 2": 7.0}, 90.0, 26.0)
    cells = table.ratios(300, 0.1, table.SA[300, 0.1], sa, ccesa)
    assert [cell.agrees for cell in cells] == [True, False, True, False]
    assert [cell.ours for cell in cells] == [0.52, 0.7, 0.52, 0.9]
    nobody_lost = table.ratios(300, 0.0, table.SA[300, 0.0], sa, ccesa)
    assert [cell.agrees for cell in nobody_lost] == [False, False, None, None]
    assert "5382 / 10502 ms = 0.512" in cells[0].remark


def test_two_cells_of_table_g2_are_misprints() -> None:
    cells = ccesa_table_g2.run_g2(Place(ROOT)).cells
    assert [cell.label for cell in cells if not cell.agrees] == [
        "p*, n = 800, q_total = 0.01",
        "p*, n = 600, q_total = 0.05",
    ]


def test_what_m_is_multiplied_by_at_128_clients() -> None:
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
