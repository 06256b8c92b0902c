"""The wheel: what it carries, what it says of itself, and that it runs where no checkout is."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from email import message_from_bytes
from email.message import Message
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml

import simfl
from tests.packaging import wheel

ROOT = Path(__file__).parents[2]
SHADOW = ("--set", "payload=shadow")

for needed in ("build", "hatchling"):  # of the extra `dev`
    pytest.importorskip(needed)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel.build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def metadata(built: Path) -> Message:
    with ZipFile(built) as files:
        (name,) = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(files.read(name))


def tracked(*folders: str) -> set[str]:
    """Files of the checkout that git does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *folders]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        pytest.skip("this is no checkout")
    return {name for name in done.stdout.splitlines() if (ROOT / name).is_file()}


@pytest.mark.ci
def test_it_carries_all_of_simfl_scenarios_and_examples(built: Path) -> None:
    with ZipFile(built) as files:
        carried = {name for name in files.namelist() if ".dist-info/" not in name}
    shipped = {f"simfl/shipped/{name}" for name in tracked("scenarios", "examples", "papers")}
    assert len(shipped) > 50
    assert carried == tracked("simfl") | shipped


@pytest.mark.ci
def test_it_runs_where_no_checkout_is(built: Path, tmp_path: Path) -> None:
    """With the libraries of this environment; test_pythons.py makes environments of its own."""
    place, empty = tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    done = subprocess.run([*pip, "--target", str(place), str(built)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    digest = wheel.begun_and_run(sys.executable, empty, *SHADOW, path=place)
    simfl.run("tutorial", {"payload": "shadow"}, out=tmp_path / "here")
    assert digest == sha256((tmp_path / "here" / "trace.jsonl").read_bytes()).hexdigest()
    code = (
        "import simfl; from simfl.runs.folder.identity import code_version as code\n"
        "from simfl.scenario import shipped\nprint(simfl.__file__, code(), *shipped.scenarios())"
    )

    def said(path: Path) -> list[str]:
        command = [sys.executable, "-c", code]
        environment = {"PYTHONPATH": str(path)}
        return subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=empty
        ).stdout.split()

    reproduced = subprocess.run(
        [sys.executable, "-m", "simfl", "reproduce", "multi_round_table1"],
        capture_output=True, text=True, cwd=empty, env={"PYTHONPATH": str(place)},
    )  # fmt: skip
    assert "multi_round_table1: 5 of 6 agree" in reproduced.stdout, reproduced.stderr
    installed, checkout = said(place), said(ROOT)
    assert Path(installed[0]).is_relative_to(place)
    assert installed[1:] == checkout[1:]  # one identity: a run of either goes on in the other


@pytest.mark.ci
def test_its_metadata_is_complete(metadata: Message) -> None:
    assert metadata["License-Expression"] == "Apache-2.0"
    assert set(metadata.get_all("License-File", [])) == {"LICENSE", "NOTICE"}
    assert metadata["Version"] == simfl.__version__
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert str(metadata.get_payload()).startswith("# simfl\n")
    assert metadata["Requires-Python"] == ">=3.11"
    classifiers = metadata.get_all("Classifier", [])
    trove = pytest.importorskip("trove_classifiers")
    assert [one for one in classifiers if one not in trove.classifiers] == []
    assert not any(one.startswith("License ::") for one in classifiers)  # PEP 639 forbids both
    assert "secure aggregation" in metadata["Keywords"]


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == simfl.__version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert citation["license"] == project["license"]
    assert citation["keywords"] == project["keywords"]
    assert citation["authors"][0]["name"] == project["authors"][0]["name"]
