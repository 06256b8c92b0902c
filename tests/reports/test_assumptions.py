"""What decided a run is named: from rows by hand, and from small runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simfl.cli import main
from simfl.reports.assumptions import Usage, after, before, hit_deadlines, limits_hit, passed, usage, usages
from simfl.reports.folder import Run
from simfl.reports.page import page
from simfl.runs.results.assumed import Assumed
from simfl.scenario.load import load
from simfl.trace.rows import SERVER, Ignored, Sent, Step, TimerSet, Trace
from tests.engine.harness import SCENARIOS, SIX, SYNC, run, script

MS = 10**6


def message(sent_ms: int, arrived_ms: int | None, nbytes: int) -> Sent:
    arrived = None if arrived_ms is None else arrived_ms * MS
    return Sent(0, 1, SERVER, "upload", "upload", "", nbytes, nbytes, -1, sent_ms * MS, arrived)


def expired(name: str, at: int) -> Step:
    return Step(0, SERVER, "protocol", "expire", name, "", 0, -1, at, at, at, (("upload", 0),))


def test_usage_by_hand() -> None:
    # 8 Mbit/s are 1000 bytes a millisecond; the latency of 5 ms is not on the link
    rows = [message(0, 25, 10_000), message(10, 45, 20_000), message(60, 85, 10_000)]
    assert usage(rows, 8.0, 5 * MS, 200 * MS) == Usage(40 / 200, 40 / (40 + 20))
    # one that broke off has moved bytes, and nobody knows when its last one left
    assert usage([*rows, message(90, None, 20_000)], 8.0, 5 * MS, 200 * MS) == Usage(60 / 200, 40 / 60)
    assert usage([], 8.0, 0, 0) == Usage(0, 0)


def test_saturated_takes_both_rate_and_time() -> None:
    assert Usage(0.1, 0.8).saturated
    assert not Usage(0.09, 1.0).saturated
    assert not Usage(0.9, 0.79).saturated


def test_a_narrow_server_link_is_saturated() -> None:
    """Six users who could send 48 Mbit/s to a link of 4."""
    narrow = run({**SIX, "network.server": {"uplink_mbps": 1000, "downlink_mbps": 4}})
    found = usages(narrow.scenario, narrow.summarised().assumed, narrow.traces)  # type: ignore[arg-type]
    for taken, given in found.values():
        assert taken.saturated
        assert not given.saturated
        assert taken.in_use <= 1
    up = sum(row.bytes for row in narrow.traces["fedavg"] if isinstance(row, Sent) and row.to == SERVER)
    end_s = narrow.rounds["fedavg"][-1].end / 1e9
    assert found["fedavg"][0].of_run == pytest.approx(8 * up / (4e6 * end_s))
    lines = limits_hit(narrow.scenario, narrow.assumed, narrow.traces)
    assert lines == ["The server's link: saturated in by fedavg, secagg, lightsecagg"]
    wide = run(SIX)
    assert limits_hit(wide.scenario, wide.assumed, wide.traces) == []


def before_of(**changes: object) -> str:
    """What is said of the server's link before a run; six users' mean rate is 8 Mbit/s."""
    facts = Assumed(d=650, relayed=[], slowdown=10.0, up_mbps=8.0, down_mbps=16.0)
    return dict(before(load(SYNC, {**SIX, "clock": "measured", **changes}), facts, {}))["server's link"]


def test_links_that_differ_are_given_by_their_mean() -> None:
    narrow = {"network.server": {"uplink_mbps": 1000.0, "downlink_mbps": 20.0}}
    alike = before_of(**narrow)
    assert "can send 48 Mbit/s; sends" in alike
    assert alike.endswith("of which they can take 96 Mbit/s; full while 3 or more of them send")
    link = {"uplink_mbps": 4.0, "downlink_mbps": 16.0, "latency_s": 0.01}
    drawn = {"kind": "lognormal", "median": 8.0, "sigma": 1.0}
    for differ in (
        {"network.users.uplink_mbps": drawn},
        {"population.classes": {"a": {"share": 0.5, "network": link}, "b": {"share": 0.5}}},
    ):
        said = before_of(**narrow, **differ)
        assert "can send 48 Mbit/s on average; sends" in said
        assert said.endswith("of which they can take 96 Mbit/s on average")
    same = {"population.classes": {"a": {"share": 0.5, "devices": {"slowdown": 3.0}}, "b": {"share": 0.5}}}
    assert before_of(**narrow, **same) == alike


def test_changing_rates_are_named() -> None:
    curve = {"kind": "daily", "low": 0.5, "peak_s": 0.0, "slot_s": 60.0}
    for changing in (
        {"network.outages": [{"of": "all", "from_s": 1.0, "to_s": 2.0}]},
        {"network.users.varies": curve},
        {"network.server.varies": curve},
    ):
        assert before_of(**changing).endswith("; before changes of rates and outages")
    assert "before" not in before_of()
    ran = run({**SIX, "payload": "shadow", "network.server.varies": curve})
    said = dict(after(ran.scenario, ran.assumed, ran.traces))["server's link"]
    assert said.startswith("1 Gbit/s before its changes, used")


def test_direct_shares_are_not_on_the_servers_link() -> None:
    relayed, direct = (run({**SIX, "network.peers": peers}) for peers in ("relayed", "direct"))
    both = [usages(r.scenario, r.assumed, r.traces) for r in (relayed, direct)]  # type: ignore[arg-type]
    assert both[0]["lightsecagg"][0].of_run > 2 * both[1]["lightsecagg"][0].of_run
    assert both[0]["fedavg"] == both[1]["fedavg"]
    names = {
        r.scenario.network.peers: dict(after(r.scenario, r.assumed, r.traces)) for r in (relayed, direct)
    }
    # 6 users, 5 others each, 326 elements of 4 bytes and a tag of 16; 39,600 bytes at 1 Gbit/s
    shares = "lightsecagg 39.6 kB"
    said = names["relayed"]["shares between users"]
    assert said.startswith(
        "relayed: they pass the server's link, in and out; a round: secagg 2.64 kB (21.1 µs"
    )
    assert said.endswith(f"{shares} (317 µs each way)")
    said = names["direct"]["shares between users"]
    assert said == f"direct: they pass only the two users' links; a round: secagg 2.64 kB, {shares}"


@pytest.mark.ci
def test_deadlines_that_ended_a_stage_are_counted() -> None:
    lost = run({**SIX, "rounds": 3, "dropout": script((0, 1, "upload", "before_send"))})
    assert hit_deadlines(lost.scenario, lost.traces) == [
        "upload (5 s) passed 1 of 3 times in fedavg, 1 of 3 times in secagg, 1 of 3 times in lightsecagg"
    ]
    assert limits_hit(lost.scenario, lost.assumed, lost.traces) == ["Deadlines that passed: upload 3 x"]
    told = run({**SIX, "rounds": 3, "detect": {"disconnect": 0.0}, "dropout": lost.scenario.dropout})
    assert hit_deadlines(told.scenario, told.traces) == []
    assert after(told.scenario, told.assumed, told.traces)[-1] == ("deadlines", "none was hit")


def test_a_timer_overtaken_by_an_answer_did_not_pass() -> None:
    rows = Trace([TimerSet(0, "upload", "upload", "", -1, 0, 5), expired("upload", 5), expired("upload", 9)])
    assert passed(rows) == {"upload": 2}
    rows.add(Ignored(0, SERVER, SERVER, "timer", "", "stale", 2, 9))
    assert passed(rows) == {"upload": 1}


def test_at_most_two_lines_follow_a_runs_table() -> None:
    many = {f"entry_{k}": {"protocol": "fedavg"} for k in range(6)}
    slow = {"network.server": {"uplink_mbps": 1, "downlink_mbps": 1}}
    lost = {"dropout": {"rate": 0.2}, "deadlines.upload": 0.2}
    result = run({"population.users": 6, "protocols": many, **slow, **lost})
    lines = limits_hit(result.scenario, result.assumed, result.traces)
    assert len(lines) == 2
    assert lines[1].endswith(" and 3 more")


def test_each_clock_states_the_cost_of_a_mask(losing: Run) -> None:
    names = dict(after(losing.scenario, losing.summary.assumed, losing.traces))
    assert list(names) == ["clock", "shares between users", "server's link", "deadlines"]
    assert names["clock"].endswith(
        "a mask of d = 650 elements takes the median user's device (slowdown 10) 32.5 µs to expand, the "
        "server 3.25 µs"
    )
    plain = run({**SIX, "protocols": ["fedavg"]})
    names = dict(after(plain.scenario, plain.assumed, plain.traces))
    assert names["clock"].endswith("plain.yaml; the median user's slowdown is 10")
    measured = run({**SIX, "clock": "measured", "protocols": ["fedavg"]})
    names = dict(after(measured.scenario, measured.assumed, measured.traces))
    assert names["clock"] == "measured on this machine x each device's slowdown, no profile"
    assert "shares between users" not in names


def test_an_earlier_versions_summary_has_its_deadlines(losing: Run) -> None:
    old = replace(losing, summary=losing.summary.model_copy(update={"assumed": None}))
    assert [name for name, _ in after(old.scenario, None, old.traces)] == ["deadlines"]
    assert "What decides these numbers" in page(old)


def test_the_terminal_begins_with_it(losing: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """On the page it follows the headline."""
    html = page(losing)
    assert html.index('id="headline"') < html.index('id="decides"') < html.index('id="critical"')
    assert "<strong>Shares between users</strong>" in html
    with pytest.raises(SystemExit):
        main(["report", str(losing.folder)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "What decides these numbers:"
    assert [line[2:].partition(":")[0] for line in lines if line.startswith("- ")] == [
        "clock", "shares between users", "server's link", "deadlines",
    ]  # fmt: skip
    assert max(map(len, lines)) <= 80


def checked(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    with pytest.raises(SystemExit):
        main(["check", *arguments])
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("# ")]


@pytest.mark.ci
def test_check_names_the_deciding_assumptions(capsys: pytest.CaptureFixture[str]) -> None:
    (scenario,) = [str(path) for path in SCENARIOS if path.stem == "sync_breakdown"]
    lines = checked(capsys, scenario, "--clock", "modelled", "--set", "deadlines.upload=0.1")
    text = " ".join(line.removeprefix("#").strip() for line in lines)
    assert max(map(len, lines)) <= 80
    assert "clock: modelled by profile reference: a mask of d = " in text
    assert (
        "server's link: takes 1 Gbit/s, and all 100 users together can send 9.8 Gbit/s; full while 11" in text
    )
    assert "Warning: deadlines.upload = 0.1 s, but user " in text
    (scenario,) = [str(path) for path in SCENARIOS if path.stem == "tutorial"]
    text = "\n".join(checked(capsys, scenario, "--clock", "measured"))
    assert "# clock: measured on this machine x each device's slowdown, no profile" in text
    assert "Warning" not in text


@pytest.mark.parametrize(
    ("takes", "says"),
    [
        (48, "takes 48 Mbit/s, and all 6 users together can send 48 Mbit/s; sends 1 Mbit/s, of which "
             "they can take 96 Mbit/s"),
        (47.9, "; full while 6 or more of them send"),
    ],
)  # fmt: skip
def test_the_bound_on_the_servers_link(takes: float, says: str) -> None:
    s = load(SYNC, {**SIX, "network.server": {"uplink_mbps": 1, "downlink_mbps": takes}})
    facts = Assumed(d=650, relayed=[], slowdown=10.0, up_mbps=8.0, down_mbps=16.0, latency_s=0.01)
    (found,) = [sentence for name, sentence in before(s, facts, {}) if name == "server's link"]
    assert found.endswith(says)
