"""Environments made from nothing, one for each Python there is: install, `simfl init`, `run` and `plan`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

import pytest

import simfl
from tests.packaging import wheel

ROOT = Path(__file__).parents[2]
TORCH = "torch==2.13.0"
CONSTRAINTS = ("-c", str(ROOT / "constraints.txt"))
INSTALL_AND_RUN_S, INSTALLED_BYTES = 180, 1.2e9

for needed in ("build", "hatchling"):
    pytest.importorskip(needed)


def interpreter(version: str) -> str:
    """The Python of this version on PATH; a name that leads to none is as good as none."""
    found = shutil.which(f"python{version}")
    if found is None or subprocess.run([found, "-c", "import venv"], capture_output=True).returncode:
        pytest.skip(f"there is no Python {version}")
    return found


def pip(python: Path, *arguments: str) -> str:
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stderr if done.returncode else ""


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_an_environment_from_nothing(version: str, tmp_path: Path, record_property) -> None:  # type: ignore[no-untyped-def]
    """The trace's digest is that of this environment, with and without content.

    Where no CPU wheel of torch can be had for a Python, a stand-in says that it is there: the CUDA build is
    several GB, and the tutorial's softmax regression runs on numpy. Time and size are not judged then.
    """
    python = interpreter(version)
    since = time.monotonic()
    subprocess.run([python, "-m", "venv", str(tmp_path / "env")], check=True)
    mine, built = tmp_path / "env" / "bin" / "python", wheel.build(tmp_path)
    whole = not pip(mine, "--dry-run", "--no-deps", f"{TORCH}+cpu")
    if whole:
        assert not pip(mine, "--no-compile", *CONSTRAINTS, TORCH, str(built))
    else:
        others = [line for line in requirements(built) if not line.startswith("torch")]
        assert not pip(mine, "--no-compile", *CONSTRAINTS, *others)
        assert not pip(mine, "--no-deps", str(built))
        (packages,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
        (packages / "torch-2.13.0.dist-info").mkdir()
        stand_in = packages / "torch-2.13.0.dist-info" / "METADATA"
        stand_in.write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0\n")
    digests = {}
    for payload in ("shadow", "real"):
        (tmp_path / payload).mkdir()
        more = "--set", f"payload={payload}"
        digests[payload] = wheel.begun_and_run(str(mine), tmp_path / payload, *more)
        if payload == "shadow":
            took = time.monotonic() - since
    size = sum(path.lstat().st_size for path in (tmp_path / "env").rglob("*") if not path.is_dir())
    record_property("seconds", took)
    record_property("bytes", size)
    print(f"Python {version}: {took:.0f} s, {size / 1e9:.3f} GB, CPU wheel: {whole}")
    simfl.run("tutorial", {"payload": "shadow"}, out=tmp_path / "here")
    expected = sha256((tmp_path / "here" / "trace.jsonl").read_bytes()).hexdigest()
    assert digests == {"shadow": expected, "real": expected}
    if whole:  # a plan asks torch what the fleet's network costs
        (tmp_path / "fleet").mkdir()
        plan = wheel.planned(str(mine), tmp_path / "fleet")
        assert plan == wheel.planned(sys.executable, tmp_path / "here", ROOT)
        busy = os.getloadavg()[0] > 2 * (os.cpu_count() or 1)
        assert took < INSTALL_AND_RUN_S or busy
        assert size < INSTALLED_BYTES
    shutil.rmtree(tmp_path / "env")


def requirements(built: Path) -> list[str]:
    """What the wheel needs without extras."""
    from email import message_from_bytes
    from zipfile import ZipFile

    with ZipFile(built) as files:
        (name,) = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
        lines = message_from_bytes(files.read(name)).get_all("Requires-Dist", [])
    return [line for line in lines if "extra ==" not in line]
