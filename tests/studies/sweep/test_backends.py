"""The same cells wherever they are run: here, or on a local cluster of two workers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from joblib import cpu_count

from simfl.cli import main
from simfl.connect import dask_engine
from simfl.errors import BadInput
from simfl.studies.sweep import backends
from simfl.studies.sweep.backends import Backend, workers
from tests.studies.sweep.small import BASE, files, study, swept


def same_cells(tmp_path: Path, backend: Backend, rounds: int, seeds: int) -> None:
    grid = {"network.users.latency_s": [0.01, 0.05], "dropout.rate": [0.0, 0.2]}
    file = study(tmp_path, base={**BASE, "rounds": rounds}, grid=grid, seeds=seeds)
    here = swept(file, tmp_path / "here")
    there = swept(file, tmp_path / "there", backend=backend, jobs=2)
    assert not there.failures
    assert here.keys == there.keys
    assert len(set(here.keys)) == 4 * seeds
    assert files(tmp_path / "here") == files(tmp_path / "there")


@pytest.mark.ci
def test_dask_in_this_process(tmp_path: Path) -> None:
    """One worker, which is a thread here: two would need processes, which take long to start."""
    distributed = pytest.importorskip("distributed", reason="simfl[dask] is not installed")
    swept(study(tmp_path), tmp_path / "here")
    light = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**light) as cluster:
        there = swept(study(tmp_path), tmp_path / "there", backend="dask", address=cluster.scheduler_address)
    assert not there.failures
    assert len(files(tmp_path / "here")) == 4 * 4 + 1  # with digests, and a lock
    assert files(tmp_path / "here") == files(tmp_path / "there")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_24_cells_on_a_cluster(tmp_path: Path, backend: Backend) -> None:
    pytest.importorskip(backends.MODULES[backend], reason=f"simfl[{backend}] is not installed")
    same_cells(tmp_path, backend, 3, 6)


@pytest.mark.slow
def test_a_dask_scheduler_by_its_address(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="simfl[dask] is not installed")
    file = study(tmp_path)
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        sweep = swept(file, tmp_path / "out", backend="dask", address=cluster.scheduler_address)
        assert len(list(sweep.kept())) == 4
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None) as cluster,
        pytest.raises(BadInput, match="has 2 threads: start it with --nthreads 1"),
        workers("dask", 1, cluster.scheduler_address),
    ):
        pass


@pytest.mark.ci
def test_a_cluster_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed", reason="simfl[dask] is not installed")
    monkeypatch.setattr(dask_engine, "ANSWERS_S", 0.2)
    with (
        distributed.utils.silence_logging_cmgr(100),
        pytest.raises(BadInput, match=r"--backend dask: tcp://127.0.0.1:9 cannot be used: "),
        workers("dask", 1, "tcp://127.0.0.1:9"),
    ):
        pass


def test_a_worker_here_ends_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks up once a second who its parent is."""
    parents, left = iter([7, 7, 1]), []

    def leave(code: int) -> None:
        left.append(code)
        raise SystemExit

    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr("time.sleep", lambda s: None)
    with pytest.raises(SystemExit):
        backends.follow(7)
    assert left == [1]
    assert not list(parents)


@pytest.mark.parametrize("command", [["explore", "fedavg", "--users", "3"], ["sweep", "studies/which_links"]])
def test_more_jobs_than_cores_are_refused(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([*command, "--jobs", "100000"])
    assert left.value.code == 2
    most = 2 * cpu_count()
    assert f"jobs=100000 must be at least 1 and at most {most}, 2 for each core" in capsys.readouterr().err
