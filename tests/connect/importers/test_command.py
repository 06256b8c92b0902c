"""`simfl import`: the files that it writes are those that scenarios read; bad input ends in one message."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from simfl.cli import main
from simfl.cli.common import BAD, FAILED
from simfl.errors import ScenarioError
from simfl.random_streams import Streams
from simfl.world.availability import Trace
from simfl.world.numbers import FileColumn, for_users
from simfl.world.rate_steps import read_steps
from tests.connect.importers.test_fedscale import CAPACITY, PUBLISHED, behaviour, completion_s, is_active
from tests.engine.harness import ROOT

NS = 10**9
OOKLA = "Name,Avg. Avg U Kbps,Avg. Avg D Kbps,Avg Lat Ms\nPeru,1000,2500,40\nNauru,,1,2\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, where commands are run, with a file in each format."""
    (tmp_path / "behave").write_bytes(pickle.dumps(PUBLISHED))
    (tmp_path / "capacity").write_bytes(pickle.dumps(CAPACITY))
    (tmp_path / "a.up").write_text("1\n")
    (tmp_path / "a.down").write_text("500\n1000\n2000\n")
    (tmp_path / "ookla.csv").write_text(OOKLA)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ended(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(["import", *arguments])
    assert isinstance(left.value.code, int)
    return left.value.code, *capsys.readouterr()


ONLY = "nothing is imported or called"
MILLISECONDS = "must be a whole number of milliseconds, at most 9999999999, not"
FEDSCALE = ("fedscale", "behave", "capacity", "--out", "traces")
MAHIMAHI = ("mahimahi", "a.up", "a.down", "--out", "traces")
WRITTEN = {
    "online": "user,from_s,to_s,period_s\n0,12788,65881,518400\n0,100044,133574,518400\n",
    "devices": "entry,key,model,period_s,windows,online_s\n0,3834,CPH1801,518400,8,211625\n",
    "capacity": "entry,key,uplink_mbps,downlink_mbps,ms_per_sample\n"
    "0,432802,5.6481096194991345,5.6481096194991345,162.0\n",
}


def test_fedscales_files_become_three(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, errors = ended(capsys, *FEDSCALE)
    assert (code, errors) == (0, "")
    assert out == (
        "Written to traces: online.csv, devices.csv, capacity.csv\n"
        "10 windows online; entries: 3 of availability (0 of them never online), 1 of\n"
        "  capacity; dropped: 1 window without a length\n"
    )
    for name, text in WRITTEN.items():
        assert (files / "traces" / f"{name}.csv").read_text().startswith(text)
    assert {path.name for path in (files / "traces").iterdir()} == {f"{name}.csv" for name in WRITTEN}


def test_links_and_places_are_written(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(capsys, *MAHIMAHI)[0] == 0
    assert (files / "traces" / "rates.csv").read_text() == (
        "user,from_s,up_mbps,down_mbps,period_s\n0,0.0,12.032,0.024064,2.0\n0,1.0,12.032,0.012032,2.0\n"
    )
    assert ended(capsys, "ookla", "ookla.csv", "--out", "traces")[0] == 0
    assert (files / "traces" / "capacity.csv").read_text() == (
        "entry,name,uplink_mbps,downlink_mbps,latency_s\n0,Peru,1.0,2.5,0.02\n"
    )


def test_parquet_holds_what_the_csv_holds(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="simfl[parquet] is not installed")
    for command in (FEDSCALE, MAHIMAHI):
        assert ended(capsys, *command)[0] == ended(capsys, *command, "--parquet")[0] == 0
    names = {path.stem for path in (files / "traces").iterdir()}
    assert names == {*WRITTEN, "rates"}
    for name in names:
        table = parquet.read_table(files / "traces" / f"{name}.parquet").to_pydict()
        lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
        assert "\n".join([*lines, ""]) == (files / "traces" / f"{name}.csv").read_text()


def test_an_empty_table_has_its_columns(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="simfl[parquet] is not installed")
    (files / "ookla.csv").write_text(OOKLA.partition("\n")[0])
    for more in ((), ("--parquet",)):
        assert ended(capsys, "ookla", "ookla.csv", "--out", "t", *more)[0] == 0
    assert (files / "t" / "capacity.csv").read_text() == "entry,name,uplink_mbps,downlink_mbps,latency_s\n"
    assert parquet.read_table(files / "t" / "capacity.parquet").num_columns == 5


# --- files that are there, and bad input ---------------------------------------------------------
def test_files_are_replaced_with_force_only(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "traces").mkdir()
    (files / "traces" / "capacity.csv").write_text("mine")
    code, out, errors = ended(capsys, *FEDSCALE)
    assert (code, out) == (BAD, "")
    assert errors == "traces/capacity.csv exists already: --force replaces it\n"
    assert {path.name for path in (files / "traces").iterdir()} == {"capacity.csv"}
    assert ended(capsys, *FEDSCALE, "--force")[0] == 0
    assert (files / "traces" / "capacity.csv").read_text() == WRITTEN["capacity"]


@pytest.mark.ci(only=["dev/zero"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fedscale", "a.up", "capacity"), f"a.up: no plain pickle: opcode b'1': {ONLY}"),
        (("fedscale", "behave", "absent"), "absent: cannot be read: No such file or directory"),
        (("fedscale", "behave", "/dev/zero"), f"/dev/zero: has more than {2**26} bytes, too many to be read"),
        (("fedscale", "capacity", "behave"), "capacity: entry 432802: finish_time is missing"),
        (("mahimahi", "a.up", "ookla.csv"),
         f"ookla.csv:1: {MILLISECONDS} 'Name,Avg. Avg U Kbps,Avg. Avg D Kbps,Avg Lat Ms'"),
        (("ookla", "a.up"), "a.up:1: the column Avg. Avg U Kbps (or avg_u_kbps) is missing"),
        (("ookla", "behave"), "behave:1: not UTF-8 text"),
    ],
)  # fmt: skip
def test_bad_input_ends_in_one_message(
    files: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    code, out, errors = ended(capsys, *arguments, "--out", "traces")
    assert (code, out, errors) == (BAD, "", f"{message}\n")
    assert list((files / "traces").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fedscale", "behave", "capacity"), "Missing option '--out'"),
        (("mahimahi", "a.up", "--out", "t"), "must be an uplink and a downlink for each user"),
        ((*MAHIMAHI, "--window-ms", "0"), "--window-ms"),
        (("fedscale", "behave", "capacity", "--out", "a.up"), "a.up is a file, not a folder"),
    ],
)
def test_bad_usage_is_refused(
    files: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    code, _, errors = ended(capsys, *arguments)
    assert code == BAD
    assert message in errors


def test_a_folder_in_the_place_of_a_file(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "traces" / "rates.csv").mkdir(parents=True)
    code, _, errors = ended(capsys, *MAHIMAHI, "--force")
    assert (code, errors) == (BAD, "traces/rates.csv exists already: it is a folder\n")


def test_parquet_names_its_extra(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    code, _, errors = ended(capsys, *FEDSCALE, "--parquet")
    assert (code, errors) == (BAD, "--parquet needs pyarrow: pip install 'simfl[parquet]'\n")
    assert not (files / "traces").exists()


def test_a_failed_write_leaves_nothing(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    code, _, errors = ended(capsys, *MAHIMAHI)
    assert (code, errors) == (FAILED, "simfl: [Errno 28] No space left on device\n")
    assert list((files / "traces").iterdir()) == []


@pytest.mark.ci
def test_pipes_are_read_and_written(files: Path) -> None:
    os.mkfifo(files / "pipe")
    writer = threading.Thread(target=lambda: (files / "pipe").write_text(OOKLA), daemon=True)
    writer.start()
    words = f"{sys.executable} -m simfl import ookla pipe --out traces | head -c 7"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, shell=True, capture_output=True, text=True, cwd=files, env=environment)
    assert (done.stdout, done.stderr) == ("Written", "")
    assert (files / "traces" / "capacity.csv").read_text().endswith("\n0,Peru,1.0,2.5,0.02\n")


@pytest.mark.ci
def test_help_imports_nothing_heavy() -> None:
    code = "import sys; from simfl.cli import main\n"
    code += "try: main(['import', 'fedscale', '--help'])\nexcept SystemExit: pass\n"
    code += "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT).returncode == 0


@pytest.mark.ci
def test_importing_does_not_import_torch(files: Path) -> None:
    code = "import sys; from simfl.cli import main\n"
    code += f"try: main({['import', *FEDSCALE]})\nexcept SystemExit as left: assert not left.code\n"
    code += "assert 'torch' not in sys.modules and 'numba' not in sys.modules"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=files, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")


# --- simfl's own readers -------------------------------------------------------------------------
def test_a_run_meets_fedscales_world(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For 1,000 random clients and times: who is online, how long training and sending take."""
    rng = random.Random(5)
    keys = rng.sample(range(10**6), 53)
    behave = {key: behaviour(rng) for key in keys}
    capacity = {
        key: {"computation": np.float64(rng.uniform(1, 500)), "communication": rng.lognormvariate(8.7, 1.2)}
        for key in keys
    }
    (files / "behave").write_bytes(pickle.dumps(behave))
    (files / "capacity").write_bytes(pickle.dumps(capacity))
    assert ended(capsys, *FEDSCALE)[0] == 0
    users, streams = 1000, Streams(1)
    online = Trace(file="traces/online.csv", assign="modulo").times(users, streams)

    def column(name: str, scale: float = 1.0) -> list[float]:
        of = FileColumn(file="traces/capacity.csv", column=name, scale=scale)
        return list(for_users(of, users, streams, "unused", key="k"))

    up_mbps, down_mbps = column("uplink_mbps"), column("downlink_mbps")
    seconds_a_sample = column("ms_per_sample", 0.003)
    seen = {True: 0, False: 0}
    for _ in range(1000):
        client = rng.randrange(users)
        key = keys[client % len(keys)]
        now = rng.choice([rng.randrange(2 * 10**6 * NS), rng.randrange(2 * 10**6) * NS])
        is_online = online.at(client, now)[0]
        at_end = now % NS == 0 and now // NS % behave[key]["finish_time"] in behave[key]["inactive"]
        assert is_online == is_active(behave[key], now / NS) or at_end
        seen[is_online] += 1
        up, down = rng.uniform(1, 1e6), rng.uniform(1, 1e6)
        computing, sending = completion_s(capacity[key], 32, 20, up, down)
        assert seconds_a_sample[client] * 32 * 20 == pytest.approx(computing, rel=1e-12)
        mine = up / 1000 / up_mbps[client] + down / 1000 / down_mbps[client]
        assert mine == pytest.approx(sending, rel=1e-12)
    assert min(seen.values()) > 200


def test_an_entry_never_online_is_met_in_turn(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    away = {"duration": 0, "inactive": [], "finish_time": 172800, "active": [], "model": ""}
    (files / "behave").write_bytes(pickle.dumps({1: PUBLISHED[107743], 2: away}))
    assert ended(capsys, *FEDSCALE)[0] == 0
    trace = Trace(file="traces/online.csv", assign="modulo").times(6, Streams(1))
    assert [trace.at(user, 0)[0] for user in range(6)] == [True, False] * 3
    with pytest.raises(ScenarioError, match="must be above from_s"):
        Trace(file="traces/online.csv").times(2, Streams(1))


def test_rates_are_read_as_steps(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(capsys, *MAHIMAHI)[0] == 0
    steps = read_steps("traces/rates.csv")
    assert steps.at(0, NS // 2) == ((12.032, 0.024064, None), NS)
    assert steps.at(0, 3 * NS) == ((12.032, 0.012032, None), 4 * NS)
