"""Workers that are processes: one is killed, one has other code, and a scheduler goes away."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from simfl.cluster import client
from simfl.errors import BadInput, RunFailed
from tests.dataplane.test_remote import same_updates
from tests.engine.harness import SYNC, lines, run

pytest.importorskip("distributed", reason="simfl[dask] is not installed")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CNN: dict[str, Any] = {
    "population.users": 6,
    "rounds": 3,
    "learning": {"model": "cnn", "way": "loop", "epochs": 4, "batch_size": 10, "lr": 0.1},
    "record_updates": True,
    "protocols": ["fedavg", "lightsecagg"],
}
MODEL = """
import os
import time
from multiprocessing import parent_process
from torch import nn
from simfl.learning.models import Model

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(64, 10)

    def forward(self, x):
        if {when} and not x.is_meta:
            {does}
        return self.last(x.flatten(1))

class Scripted(Model):
    def build(self, shape, classes):
        return Net()
"""


def scripted(folder: Path, when: str, does: str) -> dict[str, str]:
    """A model that does something of its own in a forward pass."""
    (folder / "scripted.py").write_text(MODEL.format(when=when, does=does))
    return {"module": f"{folder / 'scripted.py'}:Scripted"}


class Processes:
    """A scheduler and workers as users start them. `there` waits for so many workers."""

    def __init__(self, folder: Path) -> None:
        self.file, self.all = folder / "scheduler.json", list[subprocess.Popen[bytes]]()
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", "0")

    def _start(self, what: str, *arguments: str, code: Path = ROOT) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", "--no-dashboard", *arguments]
        process = subprocess.Popen(
            [*command, "--scheduler-file", str(self.file)],
            env={**os.environ, "PYTHONPATH": str(code)},
            cwd=self.file.parent,
            stderr=subprocess.DEVNULL,
        )
        self.all.append(process)
        return process

    def worker(self, code: Path = ROOT) -> subprocess.Popen[bytes]:
        return self._start("worker", "--nthreads", "1", "--no-nanny", "--host", "127.0.0.1", code=code)

    def address(self, workers: int) -> str:
        from distributed import Client

        while not self.file.exists() or not self.file.read_text():
            time.sleep(0.1)
        address: str = json.loads(self.file.read_text())["address"]
        with Client(address) as client:
            client.wait_for_workers(workers, timeout=60)
        return address.replace("tcp", "dask")


@contextmanager
def cluster(folder: Path) -> Iterator[Processes]:
    processes = Processes(folder)
    try:
        yield processes
    finally:
        for process in processes.all:
            process.kill()
            process.wait()


def training(address: str) -> int:
    """Wait until a worker trains a user; return its process."""
    from distributed import Client

    def at_work(dask_worker: Any) -> tuple[int, list[str]]:
        return os.getpid(), [task.key for task in dask_worker.state.executing]

    with Client(address.replace("dask", "tcp")) as client:
        while True:
            for pid, keys in client.run(at_work).values():
                if any(key.startswith("train-") for key in keys):
                    return int(pid)


def test_two_processes_give_the_same_files(tmp_path: Path) -> None:
    here = run(CNN, out=tmp_path / "here")
    there = run(CNN, out=tmp_path / "there", cluster="local:2")
    assert lines(there) == lines(here)
    same_updates(there, here)
    for name in ("trace.jsonl", "summary.json", "resolved.yaml", "breakdown.csv"):
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes(), name


def test_a_killed_worker_loses_nothing(tmp_path: Path) -> None:
    here, killed = run(CNN), list[int]()
    with cluster(tmp_path) as processes:
        pids = [processes.worker().pid, processes.worker().pid]
        address = processes.address(2)

        def kill() -> None:
            pid = training(address)
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        there = run(CNN, cluster=address)
        killer.join(1)
    assert killed
    assert killed[0] in pids
    assert lines(there) == lines(here)
    same_updates(there, here)


def test_without_workers_a_run_says_so_and_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(client, "NO_WORKER_S", 2)
    here, messages = run(CNN), list[str]()
    with cluster(tmp_path) as processes:
        only = processes.worker()
        address = processes.address(1)

        def replace() -> None:
            training(address)
            only.kill()
            since_s = time.monotonic()
            while not caplog.messages and time.monotonic() - since_s < 60:
                time.sleep(0.1)
            time.sleep(2 * client.LOOK_EVERY_S)  # so that it could be said again
            messages.extend(caplog.messages)
            processes.worker()

        threading.Thread(target=replace, daemon=True).start()
        there = run(CNN, cluster=address)
    says = "has had no worker for 2 s: waiting for one to join; Ctrl-C ends it"
    assert messages == [f"simfl: --cluster: the scheduler at {address.replace('dask', 'tcp')} {says}"]
    assert caplog.messages == messages
    assert lines(there) == lines(here)


def test_two_workers_take_half_the_time_of_one(tmp_path: Path) -> None:
    """Of trainings that only wait, so that it is not a test of this machine's cores."""
    times = tmp_path / "times"
    does = f"time.sleep(0.05); open({str(times)!r}, 'a').write(f'{{time.monotonic()}} ')"
    model = scripted(tmp_path, "self.training", does)
    world = {"population.users": 10, "rounds": 2, "learning.model": model, "learning.epochs": 2}
    took = []
    with cluster(tmp_path) as processes:
        for workers in (1, 2):
            processes.worker()
            address = processes.address(workers)
            run(world, cluster=address)
            stamps = list(map(float, times.read_text().split()))
            times.unlink()
            took.append(max(stamps) - min(stamps))
    assert took[0] > 1.6 * took[1]


def test_a_worker_with_other_code_is_refused_by_name(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "simfl", tmp_path / "simfl", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "simfl" / "version.py").open("a") as file:
        file.write("# edited\n")
    with cluster(tmp_path) as processes:
        processes.worker()
        processes.worker(code=tmp_path)
        address = processes.address(2)
        with pytest.raises(BadInput, match=r"^--cluster: worker tcp://\S+ has simfl 0\S+, not 0\S+$"):
            run(CNN, cluster=address)


@pytest.mark.parametrize(
    ("does", "message"),
    [
        ("os._exit(1)", "3 workers died while they did this, the last at tcp:"),
        ("raise MemoryError('full')", r"scripted\.py:\d+ raised MemoryError: full"),
    ],
)
def test_three_tries_and_the_run_fails(does: str, message: str, tmp_path: Path) -> None:
    model = scripted(tmp_path, "parent_process() is not None", does)
    with pytest.raises(RunFailed, match=rf"fedavg, round 0, user \d, train: train: .*{message}"):
        run({"learning.model": model}, cluster="local:2")


def test_a_scheduler_that_goes_away_ends_the_run(tmp_path: Path) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text(json.dumps({"name": "s", **SYNC}))
    long = ["--set", "rounds=2000", "--set", "learning.model=cnn", "--set", "learning.epochs=3"]
    with cluster(tmp_path) as processes:
        processes.worker()
        address, out = processes.address(1), tmp_path / "out"
        command = [sys.executable, str(ROOT / "run.py"), str(scenario), *long, "--out", str(out)]
        command += ["--save-every", "0", "--cluster", address]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        journal = out / "unfinished" / "journal.jsonl"
        while not journal.exists() or journal.read_text().count("\n") < 4:
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.1)
        processes.scheduler.kill()
        stdout, stderr = process.communicate(timeout=60)
    told = [line for line in stderr.splitlines() if not line.endswith(" ...")]
    assert process.returncode == 1
    assert len(told) == 1, stderr
    assert "the scheduler at tcp://127.0.0.1:" in told[0]
    assert f"went away; what was finished is in {out}, and simfl run --resume {out} goes on" in told[0]
    summary = json.loads((out / "summary.json").read_text())
    assert len(summary["protocols"]["fedavg"]["rounds"]) >= 3
    assert not stdout
