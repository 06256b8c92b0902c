"""The named devices' profiles: files as written, rates of AES and the rest, and a source in each."""

from __future__ import annotations

import pytest

from docs.tools.device_profiles import AES, DEVICES, written
from simfl.world import profiles
from tests.engine.harness import ROOT


@pytest.mark.parametrize("name", DEVICES)
def test_file_of_a_device_is_as_written(name: str) -> None:
    file = ROOT / "simfl" / "world" / "profiles" / f"{name}.yaml"
    assert file.read_text(encoding="utf-8") == written(DEVICES[name])
    description = profiles.load(name).description
    assert f"results/{DEVICES[name].source}.txt" in description
    assert "Weak: " in description


@pytest.mark.parametrize("name", DEVICES)
def test_all_but_aes_is_reference_times_one_factor(name: str) -> None:
    rates, reference = profiles.load(name).seconds, profiles.load("reference").seconds
    factors = [rates[kind] / reference[kind] for kind in rates if kind not in AES]
    assert max(factors) / min(factors) == pytest.approx(1, abs=0.01)
    assert rates["prg_element"] == pytest.approx(4 * rates["aead_byte"], rel=0.01)


def test_mask_without_aes_instructions_costs_as_the_papers() -> None:
    rate = profiles.load("raspberry_pi_4").seconds["prg_element"]
    assert rate == pytest.approx(50.6e6**-1 * 4, rel=0.01)
    assert rate / profiles.load("lightsecagg_table4").seconds["prg_element"] == pytest.approx(1.24, abs=0.02)
