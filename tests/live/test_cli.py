"""`simfl live`: a folder like any other, overrun, and refusals."""

import json
from pathlib import Path

import pytest
import yaml

from simfl.cli import main
from simfl.live.server import RevealedRounding
from tests.live.test_run_live import SMALL


def called(*arguments: str) -> int:
    try:
        main(list(arguments))
    except SystemExit as left:
        return int(left.code or 0)
    return 0


@pytest.mark.ci
def test_a_live_folder_is_read_like_any_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(SMALL | {"protocols": ["fedavg"]}))
    scenario, real, simulated = (str(tmp_path / name) for name in ("small.yaml", "real", "simulated"))
    assert called("live", scenario, "--out", real, "--processes", "2", "--links", "none") == 0
    told = capsys.readouterr()
    assert "s of real time, overrun " in told.out
    stats = json.loads((tmp_path / "real" / "live.json").read_text())
    warned = "overrun above 2%" in told.err
    assert warned == (stats["protocols"]["fedavg"]["overrun"] > 0.02)
    assert stats["links"] == "none"
    assert called("run", scenario, "--out", simulated, "--no-progress") == 0
    capsys.readouterr()
    assert called("report", real, "--perfetto") == 0
    assert "seconds of real time per aggregate" in capsys.readouterr().out
    page = (tmp_path / "real" / "report.html").read_text(encoding="utf-8")
    assert "All times are real, as the run was live" in page
    assert "virtual time" not in page
    assert called("report", simulated) == 0
    assert "of virtual time" in capsys.readouterr().out
    assert called("compare", real, simulated) == 0
    assert "seconds of real and virtual time per aggregate" in capsys.readouterr().out
    assert (tmp_path / "real" / "trace.perfetto.json").exists()


@pytest.mark.ci
@pytest.mark.parametrize("is_exact", [True, False])
def test_an_inexact_aggregate_changes_the_exit_code(
    is_exact: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The seeds of rounding that users report are replaced, so that no sum is found again."""
    if not is_exact:
        monkeypatch.setattr(RevealedRounding, "peek", lambda self, name: bytes(32))
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(SMALL | {"protocols": ["secagg"], "entropy": "os"}))
    arguments = str(tmp_path / "small.yaml"), "--out", str(tmp_path / "out"), "--processes", "1"
    assert called("live", *arguments, "--links", "none") == (0 if is_exact else 1)
    lines = [line for line in capsys.readouterr().err.splitlines() if "not the plain sum" in line]
    assert len(lines) == (0 if is_exact else 1)
    assert (tmp_path / "out" / "summary.json").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--set", "payload=shadow"), "payload: shadow counts work"),
        (("--processes", "5"), "processes: must be from 1 to the number of users, 4, not 5"),
        (("--links", "kernel"), "Invalid value for '--links': 'kernel' is not one of 'user', 'none'."),
        (("--set", "network.peers=direct"), "users of a live run are not connected to each other"),
    ],
)
def test_unsupported_scenarios_are_one_message(
    more: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(SMALL))
    assert called("live", str(tmp_path / "small.yaml"), "--out", str(tmp_path / "out"), *more) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
