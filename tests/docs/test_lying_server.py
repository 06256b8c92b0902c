"""docs/lying_server.md: its commands end as it says, and what the check costs is what a run says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import simfl
from simfl.cli import main
from tests.privacy.leaks.test_lies import above_half, of_lightsecagg, of_secagg

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "lying_server.md").read_text(encoding="utf-8")
PROOFS = (ROOT / "docs" / "privacy_evidence.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^simfl (privacy proof .*)$", PAGE, re.M)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_ends_as_the_page_says(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(command.split())
    assert stopped.value.code == (0 if "signatures" in command else 1)
    out = capsys.readouterr().out
    if command == COMMANDS[0]:
        proof = PAGE.split("```")[3]
        assert " ".join(proof.split()) in " ".join(out.split())
    if command == COMMANDS[1]:
        assert "x_1[0] + x_0[0] is known" in out


def test_the_page_counts_the_cases_that_are_tried() -> None:
    """Those of tests/privacy/leaks/test_lies.py."""
    page = " ".join(PAGE.split())
    bare, small = above_half(range(3, 14)), list(of_secagg(range(3, 13)))
    for said, cases in (("228 of 228 cases", small), ("152 of 152 cases", bare)):
        assert len(cases) == int(said.split()[0])
        assert said in page
    assert len(list(of_lightsecagg([4, 5]))) == 51
    by_inequality = [(n - C, t - C) for n, t, C in bare if (t - C) * (t - C - 1) <= (n - C - 1) * (n - t)]
    assert [pair for pair in by_inequality if pair[0] <= 3] == [(3, 2)] * 4
    assert "four of the 152 differ" in " ".join(PROOFS.split())


@pytest.mark.ci
def test_the_check_costs_what_the_page_says() -> None:
    entries: dict[str, Any] = {}
    for protocol in ("secagg", "lightsecagg"):
        signed = {"protocol": protocol, "consistency": "signatures"}
        entries |= {f"{protocol} 0": {"protocol": protocol}, f"{protocol} 1": signed}
        entries[f"{protocol} 2"] = {**signed, "pki": True}
    named = {name.replace(" ", "_"): entry for name, entry in entries.items()}
    waits = {"advertise": 30, "shares": 30, "upload": 120, "consistency": 30, "recovery": 30}
    changes = {"clock": "modelled", "payload": "shadow", "rounds": 1, "dropout": "none", "privacy.T": 49}
    scenario = ROOT / "scenarios" / "sync_breakdown.yaml"
    result = simfl.run(scenario, {**changes, "deadlines": waits, "protocols": named})
    rows = re.findall(r"^\| .*? \| ([\d.]+) s \| ([\d.]+) s \| ([\d.]+) s \|", PROOFS, re.M)
    assert len(rows) == len(named) == 6
    for name, told in zip(named, rows, strict=True):
        (r,) = result.summary["protocols"][name]["rounds"]
        found = (r["end_s"], r["span_s"]["offline"], r["span_s"]["recovery"])
        assert tuple(f"{s:.3f}" for s in found) == told, name
