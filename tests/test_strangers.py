"""A stranger's kind of each thing, in a file beside the scenario, is taken like our own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import simfl
from simfl.config import kinds
from simfl.config.kinds import KindRegistry
from simfl.config.yaml_tree import dump
from simfl.errors import BadInput, RunFailed, ScenarioError
from simfl.protocols.staleness import Constant, Staleness
from simfl.runs.folder.identity import scenario_key
from simfl.scenario.load import load, resolved_yaml
from simfl.scenario.study import load_study
from tests.engine.harness import ASYNC, ROOT, SYNC
from tests.strangers import CASES, SELECTION, SERVER, Case

by_path = pytest.mark.parametrize("case", CASES, ids=lambda case: case.path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "theirs.py"


def said(case: Case, file: Path, name: str = "Theirs", **values: Any) -> dict[str, Any]:
    """Return the scenario with the class of this name."""
    file.write_text(case.code)
    scenario: dict[str, Any] = {
        **SYNC, "payload": "shadow", "rounds": 2, "privacy": {"T": 1, "D": 0}, **case.scenario
    }  # fmt: skip
    *way, last = case.path.split(".")
    inner = scenario
    for part in way:
        inner[part] = dict(inner.get(part, {}))
        inner = inner[part]
    inner[last] = {"module": f"{file}:{name}", **values}
    return scenario


@pytest.mark.ci(but=["dropout"])
@by_path
def test_it_runs_and_resolves(case: Case, file: Path, tmp_path: Path) -> None:
    scenario = load(said(case, file, **case.value))
    kept = tmp_path / "resolved.yaml"
    kept.write_text(resolved_yaml(scenario))
    assert load(kept) == scenario
    result = simfl.run(scenario)
    assert result.summary["protocols"]["fedavg"]["rounds"][0]["status"] == "completed"


@by_path
def test_its_fields_can_be_overridden(case: Case, file: Path) -> None:
    ((key, value),) = case.value.items()
    scenario = load(said(case, file), {f"{case.path}.{key}": value})
    assert scenario == load(said(case, file, **case.value))


@by_path
def test_what_is_wrong_is_told_at_its_place(case: Case, file: Path) -> None:
    fields, message = case.wrong
    with pytest.raises(ScenarioError) as problem:
        load(said(case, file, **fields))
    assert message in str(problem.value)
    with pytest.raises(ScenarioError, match=rf"{case.path}.nonsense: .*no key 'nonsense'"):
        load(said(case, file, nonsense=1))
    with pytest.raises(ScenarioError, match=f"is no complete {case.thing}: it lacks {case.lacks}"):
        load(said(case, file, "Half"))
    with pytest.raises(ScenarioError, match=f"is no {case.thing}: it must be a class derived from"):
        load(said(case, file, "Path" if "import Path" in case.code else "Field"))


@by_path
def test_what_its_methods_raise_is_told_with_its_line(case: Case, file: Path) -> None:
    line = 1 + case.code[: case.code.index("1 // 0")].count("\n")
    with pytest.raises((BadInput, RunFailed), match=rf"{file}:{line} raised ZeroDivisionError"):
        simfl.run(said(case, file, "Raises"))


@by_path
def test_a_study_sweeps_it(case: Case, file: Path, tmp_path: Path) -> None:
    base, study = tmp_path / "base.yaml", tmp_path / "study.yaml"
    ((key, value),) = case.value.items()
    base.write_text(resolved_yaml(load(said(case, file))))
    study.write_text(f"base: base.yaml\ngrid: {{{case.path}.{key}: [{value}]}}\n")
    read = load_study(study)
    assert read.resolve(read.grid[0], 5) == load(said(case, file, **case.value), seed=5)


@by_path
def test_its_text_is_part_of_what_decides_a_run(case: Case, file: Path) -> None:
    before = scenario_key(load(said(case, file)), "code")
    assert scenario_key(load(said(case, file)), "code") == before
    file.write_text(case.code + "\n# another\n")
    assert scenario_key(load(said(replace(case, code=file.read_text()), file)), "code") != before


def test_a_rule_that_keeps_vectors_must_remember(file: Path) -> None:
    """Refused while the scenario is loaded, with the line of its class."""
    forgetful = SERVER.code.replace("def remember", "def forget")
    line = 1 + forgetful[: forgetful.index("class Theirs")].count("\n")
    with pytest.raises(
        ScenarioError, match=rf"learning.server.*{file}:{line} raised .*rows=1: give `remember`"
    ):
        load(said(replace(SERVER, code=forgetful), file))


def test_a_selection_says_its_own_family(file: Path) -> None:
    batches = {"kind": "multi_round", "users": 2, "T": 2}
    ours = load({**SYNC, "selection": batches}, {"population.users": 4, "privacy.D": 0})
    assert ours.selection.family(8) == 4
    assert load(said(SELECTION, file, users=3)).selection.family(8) is None


# --- installed packages -------------------------------------------------------------------------
COMMANDS = """
import sys
from simfl.cli import main
for line in sys.argv[1:]:
    try:
        main(line.split())
    except SystemExit as left:
        print("exit", left.code)
"""


def distribute(folder: Path, entry_points: str) -> None:
    """Make a folder a distribution of two examples, as an installer leaves it."""
    for name in ("dealt_pads", "hinge"):
        shutil.copy(ROOT / "examples" / f"{name}.py", folder / f"their_{name}.py")
    record = folder / "theirs-1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (record / "entry_points.txt").write_text(entry_points)


@pytest.mark.ci
def test_an_installed_packages_kinds_are_taken_like_ours(tmp_path: Path) -> None:
    distribute(
        tmp_path,
        "[simfl.protocols]\npads = their_dealt_pads:DealtPads\n"
        "[simfl.staleness]\nsteep = their_hinge:Hinge\n",
    )
    late = {"protocol": "lightsecagg_async", "staleness": {"kind": "steep", "a": 2.0}}
    (tmp_path / "rounds.yaml").write_text(dump({**SYNC, "protocols": {"pads": {"spare": 0}}}))
    (tmp_path / "buffers.yaml").write_text(dump({**ASYNC, "rounds": 2, "protocols": {"late": late}}))
    commands = ["list protocols", "list staleness", "check rounds.yaml", "run rounds.yaml --out a"]
    commands += ["run buffers.yaml --out b", "check rounds.yaml --set protocols.pads.spare=x"]
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, *commands],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    out = done.stdout
    assert out.count("exit 0") == 5, out + done.stderr
    assert re.search(r"^pads  +\S", out, re.M)
    assert re.search(r"^steep  +1 / \(a \(tau - b\) \+ 1\)", out, re.M)
    assert "protocol: pads" in out
    for folder in "ab":
        assert '"status": "completed"' in (tmp_path / folder / "summary.json").read_text()
    assert "--set: protocols.pads.spare: must be a whole number, not 'x'" in done.stderr


@pytest.mark.parametrize(
    ("word", "target", "says"),
    [
        ("steep", "their_dealt_pads:DealtPads", "is no staleness weight: it must be a class derived from"),
        ("steep", "nowhere:Hinge", "of package theirs cannot be loaded: ModuleNotFoundError"),
        ("constant", "their_hinge:Hinge", "is the name of another staleness weight"),
    ],
)
def test_a_packages_mistake_names_the_package(
    word: str, target: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribute(tmp_path, f"[simfl.staleness]\n{word} = {target}\n")
    monkeypatch.syspath_prepend(tmp_path)
    kinds._entry_points.cache_clear()
    with pytest.raises(BadInput, match=f"entry point {word}.*{says}"):
        KindRegistry("staleness weight", Staleness, (Constant,), "staleness")  # type: ignore[type-abstract]
    kinds._entry_points.cache_clear()


def test_problems_of_a_selection_are_told(file: Path) -> None:
    with pytest.raises(ScenarioError, match=r"selection\.users: users=13 is unlucky"):
        load(said(SELECTION, file, users=13))
    with pytest.raises(ScenarioError, match=r"theirs.py:\d+ raised ZeroDivisionError"):
        load(said(SELECTION, file, "RaisesEarly"))
