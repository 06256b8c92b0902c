"""The entries of protocols with a committee: derived sizes, seconds of counted work."""

from __future__ import annotations

from math import ceil

import pytest

from papers.committees import PUBLISHED, run_willow, seconds_of
from papers.counted import Round
from papers.entry import Place
from simfl.protocols.machine import SERVER
from simfl.world import profiles
from tests.engine.harness import ROOT


@pytest.mark.parametrize("length", PUBLISHED)
def test_published_bytes_follow_from_the_parameters(length: int) -> None:
    log_n, log_q, log_t, _, derived = PUBLISHED[length]
    # A 32-bit number of 10 million users takes 32 + log2(10^7) = 56 bits of a coefficient.
    polynomials = ceil(length / (log_t // 56 * 2**log_n))
    assert derived == polynomials * 2**log_n * log_q // 8


def test_the_schemes_have_the_published_sizes() -> None:
    assert all(cell.agrees for cell in run_willow(Place(ROOT)).cells)


def test_seconds_are_counts_times_rates() -> None:
    rates, counted = profiles.load("reference").seconds, Round()
    counted.work[SERVER, "upload"].update(field_add=5)
    counted.work[SERVER, "recovery"].update(field_add=2, x25519=3)
    assert seconds_of(counted, SERVER, "upload") == 5 * rates["field_add"]
    both = seconds_of(counted, SERVER, "upload", "recovery")
    assert both == pytest.approx(7 * rates["field_add"] + 3 * rates["x25519"])
