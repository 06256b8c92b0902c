"""Units and short forms that people write: each is read as the plain one, or answered with what to write."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simfl.scenario.load import load, resolved_yaml
from tests.scenario.worlds import SYNC, problems, read, swap

SESSIONS = "slowdown: 5}, availability: {kind: sessions, on_s: %s, off_s: {exponential: %s}}"
FORMS = [  # of SYNC -> what people write -> what it means
    ("upload: 600", "upload: 5s", "upload: 5"),
    ("upload: 600", "upload: 5ms", "upload: 0.005"),
    ("upload: 600", "upload: 2 min", "upload: 120"),
    ("upload: 600", "upload: {all: 2min}", "upload: {kind: all, after_s: 120}"),
    ("upload: 600", "upload: {kind: quorum, fraction: 80%, grace_s: 50 ms, after_s: 1h}",
     "upload: {kind: quorum, fraction: 0.8, grace_s: 0.05, after_s: 3600}"),
    ("dropout: none", "dropout: 0.1", "dropout: {rate: 0.1}"),
    ("dropout: none", "dropout: 10%", "dropout: {rate: 0.1}"),
    ("dropout: none", "dropout: {rate: 20%}", "dropout: {rate: 0.2}"),
    ("dropout: none", "dropout: {rate: [10%, 0.2]}", "dropout: {rate: [0.1, 0.2]}"),
    ("dropout: none", "dropout: {rate: 0.2, at: shares}", "dropout: {kind: rate, rate: 0.2, at: shares}"),
    ("{disconnect: 0.5}", "{disconnect: 250ms}", "{disconnect: 0.25}"),
    ("latency_s: 0.05", "latency_s: 20 ms", "latency_s: 0.02"),
    ("latency_s: 0.05", "latency_s: {exponential: 20 ms}", "latency_s: {exponential: 0.02}"),
    ("latency_s: 0.05", "latency_s: {kind: uniform, low: 5ms, high: 20ms}",
     "latency_s: {kind: uniform, low: 0.005, high: 0.02}"),
    ("latency_s: 0.05", "latency_s: 0.05, jitter_s: {kind: lognormal, median: 2ms, sigma: 1}",
     "latency_s: 0.05, jitter_s: {kind: lognormal, median: 0.002, sigma: 1}"),
    ("preset: 4g", "preset: 4g, uplink_mbps: 10 Mbit/s", "preset: 4g, uplink_mbps: 10"),
    ("preset: 4g", "preset: 4g, uplink_mbps: 1 MB/s", "preset: 4g, uplink_mbps: 8"),
    ("preset: 4g", "preset: 4g, uplink_mbps: {kind: uniform, low: 900 kbps, high: 1Gbps}",
     "preset: 4g, uplink_mbps: {kind: uniform, low: 0.9, high: 1000}"),
    ("server: {uplink_mbps: 1000", "server: {uplink_mbps: 2 Gbit/s", "server: {uplink_mbps: 2000"),
    ("overhead_s: 1e-3", "overhead_s: 300us", "overhead_s: 0.0003"),
    ("rounds: 3", "rounds: 3\nmemory_limit_gb: 500 MB", "rounds: 3\nmemory_limit_gb: 0.5"),
    ("rounds: 3", "rounds: 3\nhorizon_s: 1 day", "rounds: 3\nhorizon_s: 86400"),
    ("slowdown: 5}", SESSIONS % ("10min", "1h"), SESSIONS % ("600", "3600")),
    ("slowdown: 5}", "slowdown: 5}, availability: {bernoulli: 80%}",
     "slowdown: 5}, availability: {bernoulli: 0.8}"),
    ("rounds: 3", "rounds: 3\noverlap: no", "rounds: 3\noverlap: false"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "written", "meant"), FORMS)
def test_a_form_is_read_as_the_plain_one(tmp_path: Path, old: str, written: str, meant: str) -> None:
    scenario = read(tmp_path, swap(SYNC, (old, written)))
    assert scenario == read(tmp_path, swap(SYNC, (old, meant)))
    assert not re.search(r"[0-9] ?(ms|s|min|h|%|[kMG]?bit/s|Gbps|[MG]B)\b", resolved_yaml(scenario))


@pytest.mark.parametrize(
    ("old", "written", "says"),
    [
        ("upload: 600", "upload: 5m", "10: deadlines.upload: '5m' may be minutes or milliseconds: "
         "write 5min or 5ms"),
        ("upload: 600", "upload: 12:30", "10: deadlines.upload: must be a number, not '12:30': YAML "
         "has no numbers to the base of 60"),
        ("upload: 600", "upload: '1e-3'", "10: deadlines.upload: must be a number, not '1e-3': write "
         "0.001"),
        ("upload: 600", "upload: '5'", "10: deadlines.upload: must be a number, not '5': write 5 "
         "without quotes"),
        ("upload: 600", "upload: 010", "10: deadlines.upload: 010 has a leading zero: leave it out, write "
         "0o.. for octal, or put it in quotes"),
        ("rounds: 3", "rounds: 10k", "3: rounds: must be a whole number, not '10k': write 10000"),
        ("rounds: 3", "rounds: 1,000", "3: rounds: must be a whole number, not '1,000': write 1000"),
        ("rounds: 3", "rounds: 1e3", "3: rounds: must be a whole number, not 1000.0: write 1000"),
        ("slowdown: 5", "slowdown: 5x", "4: population.devices.slowdown: must be a number, not '5x'"),
        ("preset: 4g", "preset: 4g, uplink_mbps: 10 Mb", "6: network.users.uplink_mbps: unknown unit 'Mb': "
         "its units are bit/s, kbit/s, Mbit/s, Gbit/s, kB/s, MB/s, GB/s"),
        ("dropout: none", "dropout: {rate: 120%}", "15: dropout.rate: must be at most 1, not 1.2"),
        ("dropout: none", "dropout: no", "15: dropout: unknown kind 'no'; known: none, rate, worst_case, "
         "per_step, groups, script, module; did you mean 'none'?"),
        ("dropout: none", "dropout: {rate: 0.1, worst_case: 0.2}", "15: dropout: needs its kind: "
         "write `kind: rate`, with each value under its name"),
    ],
)  # fmt: skip
def test_another_form_is_answered_with_the_fix(tmp_path: Path, old: str, written: str, says: str) -> None:
    assert problems(tmp_path, swap(SYNC, (old, written))) == [f"world.yaml:{says}"]


def test_an_override_may_have_a_unit(tmp_path: Path) -> None:
    given = {"deadlines.upload": "5 min", "dropout": "20%", "network.users.latency_s": "5ms"}
    scenario = load(read(tmp_path, SYNC), given)
    assert scenario.deadlines.given["upload"].after_s == 300
    assert scenario.dropout.rate_in(0) == 0.2
    assert scenario.network.users.latency_s == 0.005
