"""Whatever scenario is drawn, each of its rounds ends exact, or aborted with a reason."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import simfl
from simfl.studies.explore.buffered import update_violations
from simfl.world.dropout import POINTS
from tests.sizes import examples

SECONDS = st.floats(0.05, 2.0).map(lambda x: round(x, 3))
WHEN = st.sampled_from(["before_send", "mid_send", "after_send"])


@st.composite
def places(draw: Any) -> Any:
    """A point of a round, and when in it."""
    at = draw(st.sampled_from(POINTS))
    return {"at": at, "when": draw(WHEN | st.just("not_counted") if at == "upload" else WHEN)}


@st.composite
def dropouts(draw: Any, N: int, rounds: int, last: str, asynchronous: bool = False) -> Any:
    """Any way to lose users, by a script up to the last point that the protocol reaches."""
    kinds = ["none", "script", "script", "script", "rate", "per_step", "worst_case"]
    kind = draw(st.sampled_from(kinds if asynchronous else [*kinds, "groups"]))
    share = draw(st.floats(0.0, 0.6))
    if kind == "rate":
        return {"kind": "rate", "rate": share, **draw(places())}
    if kind in ("per_step", "worst_case"):
        return {kind: share / 2}
    if kind == "groups":
        return {"kind": kind, "groups": draw(st.integers(1, N)), "p": share / 2, **draw(places())}
    if kind == "none":
        return "none"
    losses = []
    for user, index in sorted(draw(st.sets(st.tuples(st.integers(0, N - 1), st.integers(0, rounds - 1))))):
        loss: dict[str, Any] = {"user": user, "round": index, **draw(places())}
        if POINTS.index(loss["at"]) > POINTS.index(last):
            continue
        losses.append(loss | ({"when": "delay", "delay_s": draw(SECONDS)} if draw(st.booleans()) else {}))
    return {"kind": "script", "losses": losses}


@st.composite
def deadlines(draw: Any) -> Any:
    """Fixed or by quorum, some so short that honest users miss them."""
    made: dict[str, Any] = {}
    for name in ("advertise", "shares", "upload", "recovery"):
        after_s = draw(SECONDS)
        made[name] = after_s
        if draw(st.integers(0, 3)) == 0:
            fraction = draw(st.sampled_from([0.0, 0.5, 0.8, 1.0]))
            made[name] = {"kind": "quorum", "fraction": fraction, "grace_s": 0.1, "after_s": after_s}
    return made


@st.composite
def scenarios(draw: Any) -> dict[str, Any]:
    """Random N, T, U, graph, losses, delays and weights."""
    N, rounds = draw(st.integers(3, 8)), draw(st.integers(1, 2))
    U = draw(st.integers(2, N))
    T = draw(st.integers(0, U - 1))
    t = draw(st.integers(2, N))
    specs: dict[str, dict[str, Any]] = {
        "fedavg": {},
        "secagg": {"t": min(max(2, T + 1, t), U)},
        "secagg_plus": {"k": draw(st.integers(2, N - 1))},
        "ccesa": {"p": draw(st.floats(0.05, 1.0)), "t": min(t, N)},
        "lightsecagg": {},
    }
    specs["secagg_plus"]["t"] = draw(st.integers(2, specs["secagg_plus"]["k"] + 1))
    if draw(st.booleans()):
        specs["ccesa"] = {"p": specs["ccesa"]["p"], "majority": True}
    protocol = draw(st.sampled_from(list(specs)))
    detect = draw(st.sampled_from(["timeout", {"disconnect": 0.0}, {"disconnect": 0.3}]))
    availability = draw(st.sampled_from(["always", "always", {"bernoulli": 0.8}]))
    jitter = draw(st.sampled_from([{}, {"jitter_s": {"exponential": 0.05}}]))
    return {
        "seed": draw(st.integers(0, 2**32)),
        "clock": "modelled",
        "rounds": rounds,
        "overlap": draw(st.booleans()),
        "population": {
            "users": N,
            "devices": {
                "slowdown": {"kind": "uniform", "low": 1.0, "high": 4.0},
                "cores": draw(st.integers(1, 2)),
            },
            "availability": availability,
        },
        "network": {
            "users": {"preset": "4g", "latency_s": 0.02, **jitter},
            "server": {"uplink_mbps": 100.0, "downlink_mbps": 100.0},
            "overhead_s": 0.0002,
        },
        "detect": detect,
        "deadlines": draw(deadlines()),
        "dropout": draw(dropouts(N, rounds, "upload" if protocol == "fedavg" else "recovery")),
        "privacy": {"T": T, "D": N - U, "U": U},
        "quantization": {"levels": 65536, "clip": 4.0},
        "learning": {"epochs": 1, "batch_size": 1000, "partition": {"dirichlet": 0.5}, "evaluate_every": 9},
        "protocols": {protocol: specs[protocol]},
    }  # fmt: skip


SOON = st.floats(0.005, 0.5).map(lambda x: round(x, 3))
ENDS = ("the horizon of", "users came online", "the last")
"""How a run of users that flap, or of deadlines that are too short, may be stopped."""


@st.composite
def buffered(draw: Any) -> dict[str, Any]:
    """A random buffer: servers busy around deadlines, users that come and go faster than they work."""
    N, rounds = draw(st.integers(3, 8)), draw(st.integers(1, 4))
    K, U = draw(st.integers(2, min(4, N))), draw(st.integers(2, N))
    flapping = {"kind": "sessions", "on_s": {"exponential": draw(SOON)}, "off_s": {"exponential": draw(SOON)}}
    slowdown = {"kind": "uniform", "low": 1.0, "high": draw(st.sampled_from([2.0, 40.0]))}
    slots = {"kind": "bernoulli", "p": draw(st.floats(0.3, 0.95)), "slot_s": draw(SOON)}
    return {
        "seed": draw(st.integers(0, 2**32)),
        "clock": "modelled",
        "rounds": rounds,
        "horizon_s": 5.0,
        "overlap": draw(st.booleans()),
        "population": {
            "users": N,
            "devices": {"slowdown": slowdown},
            "availability": draw(st.sampled_from(["always", "always", flapping, slots])),
        },
        "network": {
            "users": {"preset": "4g", "latency_s": draw(st.sampled_from([0.001, 0.02, 0.1]))},
            "server": {"uplink_mbps": 100.0, "downlink_mbps": 100.0},
            "overhead_s": draw(st.sampled_from([0.0002, 0.005, 0.05, 0.2])),
        },
        "server": {"slowdown": draw(st.sampled_from([1.0, 300.0, 3000.0]))},
        "detect": draw(st.sampled_from(["timeout", {"disconnect": 0.0}, {"disconnect": 0.3}])),
        "deadlines": {"advertise": draw(SOON), "upload": draw(SECONDS), "recovery": draw(SECONDS)},
        "dropout": draw(dropouts(N, rounds, "upload", asynchronous=True)),
        "buffer": {
            "K": K,
            "staleness_bound": draw(st.integers(0, 3)),
            "concurrency": draw(st.integers(1, N)),
            "return_s": draw(SOON),
        },
        "privacy": {"T": draw(st.integers(0, U - 1)), "D": N - U, "U": U},
        "quantization": {"levels": 65536, "clip": 4.0},
        "learning": {"epochs": 1, "batch_size": 1000, "evaluate_every": 9},
        "protocols": [draw(st.sampled_from(["fedbuff", "lightsecagg_async"]))],
    }  # fmt: skip


def buffer_holds(scenario: dict[str, Any]) -> None:
    result = simfl.run(scenario)
    ((name, protocol),) = result.summary["protocols"].items()
    buffer = scenario["buffer"]
    assert list(update_violations(result.traces[name], buffer["K"], buffer["staleness_bound"])) == []
    *before, last = protocol["rounds"]
    for r in protocol["rounds"]:
        assert not r["refused"]
        assert r["aggregate_exact"] is True if r["status"] == "completed" else r["reason"]
    assert not any("stopped" in (r["reason"] or "") for r in before)
    if last["reason"] and last["reason"].startswith("stopped"):
        assert last["reason"].partition(": ")[2].startswith(ENDS)
    else:
        assert len(protocol["rounds"]) == scenario["rounds"]


def holds(scenario: dict[str, Any]) -> None:
    (protocol,) = simfl.run(scenario).summary["protocols"].values()
    assert len(protocol["rounds"]) == scenario["rounds"]
    for r in protocol["rounds"]:
        assert not r["refused"]
        if r["status"] == "completed":
            assert r["aggregate_exact"] is True
            assert r["wrapped"] == 0
            assert 1 <= r["survivors"] <= r["selected"] <= scenario["population"]["users"]
            assert r["reliable"] in (True, None)
        else:
            assert r["reason"]
            assert not r["reason"].startswith("stopped")
            assert r["reliable"] in (False, None)


quick = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True}


@pytest.mark.ci
@settings(max_examples=examples(50), phases=(Phase.generate, Phase.shrink), **quick)
@given(scenarios())
def test_50_random_scenarios(scenario: dict[str, Any]) -> None:
    holds(scenario)


@pytest.mark.ci
@settings(max_examples=examples(25), phases=(Phase.generate, Phase.shrink), **quick)
@given(buffered())
def test_25_random_buffers(scenario: dict[str, Any]) -> None:
    buffer_holds(scenario)


@pytest.mark.slow
@settings(max_examples=3000, phases=(Phase.generate, Phase.shrink), **quick)
@given(buffered())
def test_3000_random_buffers(scenario: dict[str, Any]) -> None:
    buffer_holds(scenario)


@pytest.mark.slow
@settings(max_examples=10_000, phases=(Phase.generate, Phase.shrink), **quick)
@given(scenarios())
def test_10_000_random_scenarios(scenario: dict[str, Any]) -> None:
    holds(scenario)
