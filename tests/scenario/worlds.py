"""Scenarios as YAML text, and their problems as text, for the tests beside this file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from simfl.errors import ScenarioError
from simfl.scenario.load import load
from simfl.scenario.schema import Scenario

SYNC = """\
seed: 1
clock: modelled
rounds: 3
population: {users: 100, devices: {slowdown: 5}}
network:
  users: {preset: 4g, latency_s: 0.05}
  server: {uplink_mbps: 1000, downlink_mbps: 1000}
  overhead_s: 1e-3
detect: {disconnect: 0.5}
deadlines: {advertise: 60, shares: 60, upload: 600, recovery: 60}
privacy:
  T: 50
  D: 30
quantization: {clip: 8}
dropout: none
protocols:
  fedavg:
  secagg: {t: 55}
  lightsecagg:
"""

ASYNC = """\
seed: 1
clock: modelled
rounds: 3
population:
  users: 100
  devices: {slowdown: {kind: lognormal, median: 5, sigma: 0.5}}
  availability: {kind: sessions, on_s: {exponential: 600}, off_s: 900}
network:
  users: {uplink_mbps: 10, downlink_mbps: 50, latency_s: 0.05}
  server: {uplink_mbps: 1000, downlink_mbps: 1000}
  overhead_s: 1e-3
detect: timeout
deadlines: {advertise: 60, upload: 600, recovery: 60}
dropout: {rate: 0.1}
privacy: {T: 50, D: 30, U: 70}
quantization: {clip: 8, levels: 1024}
buffer:
  K: 10
  staleness_bound: 10
  return_s: 60
protocols:
  fedbuff:
  lightsecagg_async: {staleness: {polynomial: 1.0}}
"""


def write(folder: Path, text: str, name: str = "world.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def swap(text: str, *pairs: tuple[str, str]) -> str:
    """The text with each old part, which must be there, replaced."""
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def read(folder: Path, text: str, overrides: Mapping[str, Any] | None = None) -> Scenario:
    return load(write(folder, text), overrides)


def problems(folder: Path, text: str, overrides: Mapping[str, Any] | None = None) -> list[str]:
    """What loading the text says, a line each, without the folder's name."""
    with pytest.raises(ScenarioError) as caught:
        read(folder, text, overrides)
    return str(caught.value).replace(f"{folder}/", "").splitlines()
