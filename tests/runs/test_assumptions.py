"""What is known of a scenario's times before a run, against hand calculations on the plain profile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simfl.runs.assumptions import assumed, count, masking, too_short
from simfl.runs.build import Experiment, build
from simfl.scenario.load import load
from tests.engine.harness import ASYNC, SIX, SYNC, run

D = 650  # parameters of the linear model on the digits
TRAINING_S = 10 * (480_000e-9 + 5 * 100_000e-9)  # slowdown x (multiply-adds of 250 samples + 5 minibatches)
ON_LINK_S = 4 * (D + 1) * 8 / 8e6 + 0.01  # an upload at 8 Mbit/s, and the latency


def study(overrides: dict[str, Any] | None = None, base: dict[str, Any] = SYNC) -> Experiment:
    return build(load(base, {**SIX, **(overrides or {})} if base is SYNC else overrides))


def test_a_mask_costs_its_elements_at_the_profiles_rates() -> None:
    facts = assumed(study({"server": {"cores": 4, "slowdown": 2.0}}))
    each_s = D * (2e-9 + 3e-9)  # an element is expanded and added
    assert (facts.d, facts.slowdown, facts.relayed) == (D, 10.0, ["coded_upload", "inbox", "shares", "turn"])
    assert facts.expand_user_s == pytest.approx(10 * each_s)
    assert facts.expand_server_s == pytest.approx(2 / 4 * each_s, abs=1e-9)


def test_the_median_device_is_a_fact() -> None:
    slow = {"kind": "uniform", "low": 8, "high": 16}
    facts = assumed(study({"population.devices.slowdown": slow}))
    assert 8 < facts.slowdown < 16
    assert facts.expand_user_s == pytest.approx(facts.slowdown * D * 5e-9, abs=1e-9)


def test_the_measured_clock_gives_no_rates() -> None:
    facts = assumed(study({"clock": "measured"}))
    assert (facts.expand_user_s, facts.expand_server_s) == (None, None)


def test_work_for_masks_is_counted() -> None:
    found = masking(study())
    assert list(found) == ["secagg", "lightsecagg"]
    # quantised, and the mask added, which is there: those with five others added to its own
    assert found["secagg"].phases_s["upload"] == pytest.approx(10 * (D * 12e-9 + (D + 1) * 3e-9))
    counted = count(study(), "secagg")
    assert counted is not None
    assert counted.phases["offline"]["field_add"] == 5 * (D + 1)
    # the mask is made in a call that sends nothing
    assert counted.silent["field_add"] == 5 * (D + 1)
    # 6 users share with 5 others: two secrets of 36 bytes; or (d + 1) / (U - T) elements of 4; sealed in 16
    assert found["secagg"].shares_bytes == 6 * 5 * (2 * 36 + 16)
    assert found["lightsecagg"].shares_bytes == 6 * 5 * (4 * 326 + 16)


def test_shares_are_as_many_as_the_engine_sends() -> None:
    result, counted = run(SIX), masking(study())
    for name in counted:
        rows = [row for row in result.traces[name] if getattr(row, "kind", "") == "shares"]
        assert sum(row.size for row in rows) == counted[name].shares_bytes


def test_buffers_and_large_cohorts_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert masking(study(base=ASYNC)) == {}
    monkeypatch.setattr("simfl.runs.assumptions.MAX_COHORT", 5)
    assert masking(study()) == {}


def test_a_deadline_below_training_and_link_has_a_warning() -> None:
    """Users agree on masks, open shares and make the mask while they train, or before: as overlap has it."""
    upload_s = 10 * (D * 12e-9 + (D + 1) * 3e-9)
    shares_s = 5 * (40e-6 + 1500e-9 + (2 * 36 + 16) * 1e-9)
    mask_s = upload_s + 10 * (shares_s + (D + 1) * (6 * 2e-9 + 5 * 3e-9))
    assert list(too_short(study({"deadlines.upload": TRAINING_S + upload_s + ON_LINK_S + 1e-6}))) == []
    needed_s = TRAINING_S + mask_s + ON_LINK_S
    assert list(too_short(study({"deadlines.upload": needed_s + 1e-6, "overlap": False}))) == []
    (line,) = too_short(study({"deadlines.upload": 0.022, "overlap": False}))
    assert line == (
        "Warning: deadlines.upload = 0.022 s, but user 0 (slowdown 10, uplink 8 Mbit/s) needs at least "
        f"{needed_s:.3g} s in secagg: {TRAINING_S + mask_s:.3g} s of work, with its training, and "
        f"{ON_LINK_S:.3g} s on its link; 6 of 6 users are too slow; too short for fedavg, lightsecagg as well"
    )
    (line,) = too_short(study({"deadlines.upload": 0.022, "protocols": ["secagg"]}))
    assert line.endswith("; it trains before the deadline runs, too (overlap)")


def test_a_user_that_is_warned_of_is_given_up() -> None:
    """The engine agrees with the warning: below it nobody makes it, above it somebody may."""
    only = {"protocols": ["fedavg"], "deadlines.upload": 0.022}
    assert len(list(too_short(study(only)))) == 1
    assert run({**SIX, **only}).summary["protocols"]["fedavg"]["rounds"][0]["status"] == "aborted"
    assert list(too_short(study({**only, "deadlines.upload": 0.05}))) == []
    assert run({**SIX, **only, "deadlines.upload": 0.05}).rounds["fedavg"][0].reason is None


def test_the_slowest_user_is_named() -> None:
    slow = {"kind": "uniform", "low": 8, "high": 16}
    s = study({"population.devices.slowdown": slow, "deadlines.upload": 0.001, "protocols": ["fedavg"]})
    (line,) = too_short(s)
    drawn = s.scenario.population.devices.slowdown.draw(s.streams.rng("devices"), 6)
    assert f"user {drawn.argmax()} (slowdown {drawn.max():.3g}, " in line


def test_a_stage_of_shares_has_a_deadline_too() -> None:
    shares = {"deadlines.shares": 0.015, "protocols": ["secagg", "lightsecagg"], "privacy.U": 4}
    (line,) = too_short(study(shares))  # 6600 bytes at 8 Mbit/s, and the latency: 16.6 ms
    assert line.startswith(
        "Warning: deadlines.shares = 0.015 s, but user 0 (slowdown 10, uplink 8 Mbit/s) needs at least "
    )
    assert "in lightsecagg: " in line
    assert line.endswith("0.0166 s on its link; 6 of 6 users are too slow")


def test_users_with_slow_links_are_named_and_counted() -> None:
    """Rates as FedScale's, where some have hundreds of times what others have: one line for each deadline."""
    rates = {"kind": "lognormal", "median": 6.0, "sigma": 1.5}
    classes = {
        "phone": {"share": 0.7, "network": {"uplink_mbps": rates, "downlink_mbps": 20.0, "latency_s": 0.05}},
        "desk": {"share": 0.3},
    }
    world = {"population.users": 200, "privacy": {"T": 2, "D": 20}, "population.classes": classes}
    s = study({**world, "deadlines.upload": 0.1, "protocols": ["fedavg"]})
    (line,) = too_short(s)
    samples = np.array([s.trainer.samples(user) for user in range(200)])
    training_s = TRAINING_S / 240 * samples
    link_s = 4 * (D + 1) * 8 / (s.people.up_mbps * 1e6) + s.people.latency_s
    slow = int((training_s + link_s > 0.1).sum())
    first = int(link_s.argmax())
    assert f"user {first} of class phone (slowdown 10, uplink {s.people.up_mbps[first]:.3g} Mbit/s)" in line
    assert line.endswith(f"{link_s[first]:.3g} s on its link; {slow} of 200 users are too slow")
    assert 1 < slow < 20


def test_without_rates_no_deadline_has_a_warning() -> None:
    assert list(too_short(study({"clock": "measured", "deadlines.upload": 0.001}))) == []


def test_a_buffered_runs_deadline_counts_its_training() -> None:
    lines = list(too_short(study({"deadlines.upload": 0.012}, ASYNC)))
    assert len(lines) == 1
    assert "fedbuff" in lines[0]
