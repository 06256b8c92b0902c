"""Encoding and decoding: work at both ends of each message, where a scenario counts it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from simfl.errors import ScenarioError
from simfl.runs.results.metrics import rounds
from simfl.trace.rows import SERVER, Sent, Step, Trace
from tests.engine.harness import ASYNC, PLAIN, SIX, SYNC, of, run

SLOW, NS_A_BYTE = 10, 20


@pytest.fixture
def codec(tmp_path: Path) -> dict[str, Any]:
    """A scenario's keys that count 20 ns a byte."""
    file = tmp_path / "profile.yaml"
    file.write_text(PLAIN.read_text(encoding="utf-8") + f"  codec_byte: {NS_A_BYTE}.0e-9\n", encoding="utf-8")
    return {"profile": str(file), "network.codec": True}


def by_party(trace: Trace) -> dict[int, int]:
    """The nanoseconds that each party works."""
    total: defaultdict[int, int] = defaultdict(int)
    for row in of(trace, Step):
        total[row.party] += row.end - row.start
    return total


@pytest.mark.parametrize("name", ["fedavg", "lightsecagg"])
def test_both_ends_pay_for_each_byte_of_a_message(name: str, codec: dict[str, Any]) -> None:
    base = {"protocols": [name], "deadlines.recovery": {"all": 2.0}}  # or an answer that is not needed is cut
    with_it, without = (run({**base, **more}).traces[name] for more in (codec, {}))
    took, before = by_party(with_it), by_party(without)
    for user in range(3):
        size = sum(row.size for row in of(with_it, Sent) if user in (row.sender, row.to))
        assert took[user] - before[user] == SLOW * NS_A_BYTE * size
    received = sum(row.size for row in of(with_it, Sent, to=SERVER))
    # One message that goes to all, as the model does, is encoded once; invitations and inboxes are three.
    sent = of(with_it, Sent, sender=SERVER)
    to_all = {row.kind: row.size for row in sent if row.kind not in ("invite", "inbox")}
    own = sum(row.size for row in sent if row.kind not in to_all)
    assert took[SERVER] - before[SERVER] == NS_A_BYTE * (received + sum(to_all.values()) + own)


@pytest.mark.parametrize(("base", "more"), [(SYNC, SIX), (ASYNC, {})], ids=["rounds", "buffer"])
def test_the_critical_path_adds_up(base: dict[str, Any], more: dict[str, Any], codec: dict[str, Any]) -> None:
    for trace in run({**more, **codec}, base).traces.values():
        for entry in rounds(trace):
            assert sum(entry.critical.values()) == entry.end - entry.start


def test_a_profile_without_its_rate_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"network.codec: profile .* gives no seconds.codec_byte"):
        run({"network.codec": True})


def test_a_measured_clock_has_nothing_to_measure() -> None:
    with pytest.raises(ScenarioError, match=r"network.codec: needs clock modelled or recorded"):
        run({"network.codec": True, "clock": "measured"})
