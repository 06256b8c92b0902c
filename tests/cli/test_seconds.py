"""Options of seconds that are no number."""

from __future__ import annotations

import pytest

from simfl.cli import main


@pytest.mark.parametrize("seconds", ["nan", "inf"])
@pytest.mark.parametrize(
    "command",
    [
        ["serve", "tutorial", "--tokens", "none", "--wait"],
        ["join", "simfl://127.0.0.1:1", "--users", "0", "--token-file", "none", "--wait"],
        ["run", "tutorial", "--save-every"],
    ],
    ids=lambda command: command[0],
)
def test_seconds_that_are_no_number_are_refused(
    command: list[str], seconds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """nan passes a minimum of 0."""
    with pytest.raises(SystemExit) as ended:
        main([*command, seconds])
    assert ended.value.code == 2
    assert f"must be a number of seconds, not {seconds}" in capsys.readouterr().err
