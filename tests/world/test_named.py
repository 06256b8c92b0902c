"""Links and phones by name: their figures are those of the sources, and old names mean what they meant."""

from __future__ import annotations

from typing import get_args

import pytest

from simfl.config.blocks import Quantiles, Uniform
from simfl.scenario.load import load
from simfl.scenario.world import Devices, LinkName, UserLink
from simfl.world import named

MEANS = {"lte_2021": 52.6, "5g_2021": 305.7, "wifi4_2021": 55.3, "wifi5_2021": 227.3, "wifi6_2021": 371.9}
"""Mbit/s: means of the 10,000 published tests of each file."""


def test_every_name_of_a_link_has_figures() -> None:
    assert set(get_args(LinkName)) == {*named.MEASURED, *named.PAPERS_MBPS}
    assert set(MEANS) == set(named.MEASURED)


@pytest.mark.parametrize("name", MEANS)
def test_percentiles_have_the_mean_of_the_tests(name: str) -> None:
    """The straight lines between percentiles add at most 5 %."""
    downlink = UserLink.model_validate({"preset": name}).downlink_mbps
    assert isinstance(downlink, Quantiles)
    assert downlink.average() == pytest.approx(MEANS[name], rel=0.05)
    assert downlink.quantile(0.5) == named.MEASURED[name][1][4]


def test_papers_links_are_the_old_presets() -> None:
    for old, new in (("4g", "papers_4g"), ("5g", "papers_5g")):
        links = [UserLink.model_validate({"preset": name, "latency_s": 0.04}) for name in (old, new)]
        assert links[0].uplink_mbps == links[1].uplink_mbps == links[1].downlink_mbps


def test_measured_links_give_way_to_given_figures() -> None:
    link = UserLink.model_validate({"preset": "lte_2021", "uplink_mbps": 5.0})
    assert (link.uplink_mbps, link.latency_s) == (5.0, 0.014)


def test_phones_are_slowdowns() -> None:
    phone = Devices.model_validate({"slowdown": "snapdragon_8"})
    assert phone.slowdown == Uniform(low=1.4, high=2.7)
    default = load("minimal").population.devices.slowdown
    assert Devices.model_validate({"slowdown": "assumed_phone"}).slowdown == default


def test_phones_follow_from_the_measured_kernels() -> None:
    """15 and 30 GFLOP/s against the reference's 2 operations in 4.88e-11 s."""
    reference = 2 / 4.88e-11 / 1e9
    phone = named.PHONES["snapdragon_8"]
    assert phone["low"] == pytest.approx(reference / 30, abs=0.05)
    assert phone["high"] == pytest.approx(reference / 15, abs=0.05)
