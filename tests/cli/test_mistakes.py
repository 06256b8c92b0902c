"""Mistakes at the command line, each answered by one line that names the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from simfl.cli import main
from tests.scenario.worlds import SYNC, problems

DEALT = "examples/dealt_pads.py"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sweep", "scenarios/tutorial.yaml"], "this is a scenario and not a study; `simfl run` reads it"),
        (["plan", "scenarios/tutorial.yaml"], "this is a scenario and not a fleet; `simfl run` reads it"),
        (["plan", "studies/users_and_losses"], "this is a study and not a fleet; `simfl sweep` reads it"),
        (["sweep", "fleets/phones"], "this is a fleet and not a study; `simfl plan` reads it"),
        (["run", "fleets/phones"], "this is a fleet and not a scenario; `simfl plan` reads it"),
        (["ping", "localhost"], "'localhost' is neither an address, such as simfl://localhost:7000, nor a"),
        (["verify", DEALT], f"{DEALT}: name a class behind a colon, such as {DEALT}:DealtPads"),
        (["verify", f"{DEALT}:Dealt"], "dealt_pads.py has no Dealt; there are: DealtPads"),
        (
            ["check", "tutorial", "--set", "payload=shadow", "--set", "population.users=100000"],
            "above memory_limit_gb=2; selection: {random: 200} has 200 of them in a round",
        ),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_mistake_is_answered_by_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the folder of the repository, with shipped files."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    *usage, last = capsys.readouterr().err.splitlines()
    assert message in last
    assert not [line for line in usage if not line.startswith(("Usage: ", "Try ", "simfl: 100,000"))][1:]


@pytest.mark.parametrize(
    "words", [["privacy", "proof", "secagg", "--random", "9" * 5000], ["compare", "a" * 5000, "b"]]
)
def test_long_value_is_shortened(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
    last = capsys.readouterr().err.splitlines()[-1]
    assert "9" * 100 in last or "a" * 100 in last
    assert len(last) < 400


def test_endless_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A device whose bytes never end, in place of a scenario."""
    with pytest.raises(SystemExit) as ended:
        main(["check", "/dev/zero"])
    assert ended.value.code == 2
    assert "/dev/zero: has more than 67108864 bytes" in capsys.readouterr().err


def test_missing_block_names_the_keys_that_it_needs(tmp_path: Path) -> None:
    found = problems(tmp_path, SYNC.replace("network:", "wires:"))
    assert any("network: missing: a mapping with users, server, overhead_s" in line for line in found)
