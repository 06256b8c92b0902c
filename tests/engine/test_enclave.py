"""A server in an enclave: attested once, slower by a factor, and refused where it does not fit."""

import pytest

from simfl.errors import ScenarioError
from simfl.protocols.registry import PROTOCOLS
from simfl.runs.build import build
from simfl.scenario.load import load
from simfl.trace.rows import SERVER, Step
from tests.engine.harness import ASYNC, SYNC, of, run

TEE = {"attestation_s": 1.5, "slowdown": 4.0}
FEDBUFF = {"protocols": {"fedbuff": {}, "tee_fedbuff": {"tee": TEE}}, "quantization": None, "privacy": None}


def server_steps(result, name):
    return [row for row in of(result.traces[name], Step) if row.party == SERVER]


def test_the_buffer_begins_after_the_attestation():
    """A step takes 4 times as long, beside the overhead of a message; the first one takes 1.5 s more."""
    result = run({**FEDBUFF, "rounds": 3}, ASYNC)
    plain, inside = (server_steps(result, name) for name in FEDBUFF["protocols"])
    overhead = 1_000_000
    assert [row.call for row in plain[:3]] == [row.call for row in inside[:3]] == ["start", "begin", "begin"]
    first, second = plain[0].end - plain[0].start, inside[0].end - inside[0].start
    assert second == 1_500_000_000 + 4 * first
    assert all(row.start >= 1_500_000_000 for row in inside[1:])
    assert [row.end - row.start for row in inside[1:9]] == [
        4 * (row.end - row.start - has) + has
        for row in plain[1:9]
        for has in [overhead * (row.call == "receive")]
    ]
    rounds = [result.summary["protocols"][name]["rounds"] for name in FEDBUFF["protocols"]]
    assert all(row["aggregate_exact"] for row in rounds[1])
    assert rounds[1][0]["end_s"] > rounds[0][0]["end_s"] + 1.5
    assert rounds[1][1]["end_s"] - rounds[1][1]["start_s"] < 1.5


def test_an_enclave_without_settings_costs_nothing():
    result = run({**FEDBUFF, "protocols": ["fedbuff", "tee_fedbuff"]}, ASYNC)
    ends = [
        [(row.call, row.end) for row in server_steps(result, name)] for name in ("fedbuff", "tee_fedbuff")
    ]
    assert ends[0] == ends[1]


def test_rounds_take_the_same_option():
    """Willow's first round is attested, and the second is not."""
    entries = {"willow": {}, "inside": {"protocol": "willow", "tee": TEE}}
    result = run({"protocols": entries, "rounds": 2, "deadlines.reveal": 5}, SYNC)
    starts = {
        name: [row.end - row.start for row in server_steps(result, name) if row.call == "start"]
        for name in entries
    }
    assert starts["inside"] == [4 * starts["willow"][0] + 1_500_000_000, 4 * starts["willow"][1]]


def test_a_buffer_that_does_not_fit_is_refused():
    """d = 650: 4 bytes for each of the model and K = 3 updates, and 16 for their sum and mean."""
    K, needed = 3, 650 * (4 * 4 + 16)
    settings = {**FEDBUFF, "buffer.K": K}
    fits = {"tee_fedbuff": {"tee": {"memory_gb": needed / 1e9}}}
    build(load(ASYNC, {**settings, "protocols": fits}))
    less = {"tee_fedbuff": {"tee": {"memory_gb": (needed - 1) / 1e9}}}
    message = (
        r"tee: memory_gb=2\.0799e-05 must be at least the 2\.08e-05 GB of the model of d=650, K=3 updates"
    )
    with pytest.raises(ScenarioError, match=message):
        build(load(ASYNC, {**settings, "protocols": less}))


def test_sums_that_do_not_fit_are_refused():
    """At most 1,000 elements: two KAHE elements of 4,096 x 76 bits, and both parts of AHE twice."""
    needed = 2 * (4096 * 76 // 8 + 2 * 4096 * 80 // 8)
    fits, less = (
        {"protocols": {"willow": {"tee": {"memory_gb": size / 1e9}}}, "deadlines.reveal": 5}
        for size in (needed, needed - 1)
    )
    build(load(SYNC, fits))
    with pytest.raises(ScenarioError, match="of an upload and a sum of uploads"):
        build(load(SYNC, less))


def test_an_enclave_is_not_faster():
    with pytest.raises(ValueError, match="slowdown"):
        PROTOCOLS["tee_fedbuff"](tee={"slowdown": 0.5})
