"""Scenarios by name: `simfl init`, `simfl list scenarios`, `simfl run NAME`, and completion in shells."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import simfl
from simfl.cli import main
from simfl.protocols.registry import PROTOCOLS
from simfl.scenario import shipped
from simfl.scenario.fleet import load_fleet
from simfl.scenario.load import load
from simfl.scenario.study import load_study

ROOT = Path(__file__).parents[2]
NAMES = list(shipped.scenarios())
Called = Callable[..., tuple[int, str, str]]
SMALL = ["--set", "rounds=1", "--set", "payload=shadow", "--protocols", "fedavg"]


@pytest.fixture
def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Called:
    """A command in an empty folder: its exit code, and what it printed on both streams."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(list(arguments))
        return int(left.value.code or 0), *capsys.readouterr()

    return call


def test_every_yaml_file_has_a_name() -> None:
    files = [*(ROOT / "scenarios").rglob("*.yaml"), *(ROOT / "examples").rglob("*.yaml")]
    assert sorted(shipped.scenarios().values()) == sorted(files)
    # `simfl privacy proof` takes these as protocols.
    assert set(NAMES) & set(PROTOCOLS) == {"assistants", "flamingo", "willow"}
    assert NAMES[:2] == ["assistants", "async_buffer"]
    assert NAMES.index("whole_batches") < NAMES.index("attacks/inversion")


@pytest.mark.ci(but=["tutorial", "async_buffer"])
@pytest.mark.parametrize("name", NAMES)
def test_init_writes_the_files_of_a_scenario(name: str, tmp_path: Path, called: Called) -> None:
    code, out, _ = called("init", name)
    assert code == 0
    written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert out.count("Written to ") == len(written)
    assert f"{name}.yaml" in written
    for file in written:
        place = ROOT / file if file.startswith("examples/") else ROOT / "scenarios" / file
        assert (tmp_path / file).read_bytes() == place.read_bytes()
    path = tmp_path / f"{name}.yaml"
    if out.endswith(f"Try: simfl sweep {name}.yaml\n"):
        study = load_study(path)
        assert all(str(folder).startswith(str(tmp_path)) for folder in study.folders.values())
    elif out.endswith(f"Try: simfl plan {name}.yaml\n"):
        assert load_fleet(path).name == path.stem
    else:
        assert out.endswith(f"Try: simfl run {name}.yaml\n")
        assert load(path).name == path.stem


def test_init_writes_the_tutorial_by_default(tmp_path: Path, called: Called) -> None:
    assert called("init") == (0, "Written to tutorial.yaml\nTry: simfl run tutorial.yaml\n", "")
    assert called("run", "tutorial.yaml", *SMALL)[0] == 0


def test_init_overwrites_nothing(tmp_path: Path, called: Called) -> None:
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "rides.csv").write_text("mine")
    code, out, errors = called("init", "mixed_links")
    assert (code, out) == (2, "")
    assert "traces/rides.csv exists already" in errors
    assert (tmp_path / "traces" / "rides.csv").read_text() == "mine"
    assert not (tmp_path / "mixed_links.yaml").exists()


def test_init_takes_names_only(tmp_path: Path, called: Called) -> None:
    (tmp_path / "mine").write_text("seed: 1")
    code, _, errors = called("init", "mine")
    assert code == 2
    assert "a file of yours" in errors


@pytest.mark.ci
def test_a_name_runs_and_a_file_of_that_name_wins(tmp_path: Path, called: Called) -> None:
    assert called("run", "tutorial", *SMALL, "--out", "first")[0] == 0
    shipped_text = (ROOT / "scenarios" / "tutorial.yaml").read_text()
    (tmp_path / "tutorial").write_text(shipped_text.replace("seed: 1", "seed: 5"))
    assert called("run", "tutorial", *SMALL, "--out", "second")[0] == 0
    seeds = [load(tmp_path / run / "resolved.yaml").seed for run in ("first", "second")]
    assert seeds == [1, 5]


def test_python_takes_names_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    more = {"rounds": 1, "clock": "modelled", "protocols": ["fedbuff"]}
    assert list(simfl.run("async_buffer", more).traces) == ["fedbuff"]
    assert load_study(Path("studies/which_answer")).name == "which_answer"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "asinc_buffer"], "asinc_buffer: there is no such file, and `simfl list scenarios` has"),
        (["run", "asinc_buffer"], "did you mean 'async_buffer'?"),
        (["check", "hinge"], "did you mean 'examples/hinge'?"),
        (["sweep", "which_answer"], "did you mean 'studies/which_answer'?"),
        (["sweep", "tutorial"], "this is a scenario and not a study"),
        (["live", "nonesuch_at_all"], "has no such name"),
        (["privacy", "attack", "membership", "membership"], "did you mean 'attacks/membership'?"),
        (["ping", "tutoria"], "did you mean 'tutorial'?"),
        (["init", "tutoria"], "did you mean 'tutorial'?"),
        (["run", "scenarios/tutorial.yaml"], "`simfl init tutorial` writes it"),
        (["run", "tutorial.yaml"], "simfl's own is called 'tutorial'"),
        (["run", "nowhere.yaml"], "cannot be read: No such file"),
        (["run", "."], ".: cannot be read"),
        (["run", "studies/which_answer"], "this is a study and not a scenario; `simfl sweep` reads it"),
        (["run", "fleets/phones"], "this is a fleet and not a scenario; `simfl plan` reads it"),
    ],
)
def test_an_unknown_name_is_answered_with_a_near_one(called: Called, arguments: list[str], says: str) -> None:
    code, out, errors = called(*arguments)
    assert (code, out) == (2, "")
    assert says in errors


@pytest.mark.ci
def test_proof_takes_a_name(called: Called) -> None:
    small = ["--set", "population.users=4", "--set", "rounds=1", "--set", "privacy={T: 1, D: 1, U: 3}"]
    code, out, errors = called("privacy", "proof", "tutorial", "--colluders", "0", *small)
    assert "fedavg, 4 users, the whole run" in out, errors
    assert code == 1  # of fedavg the server sees every update


def test_list_prints_the_first_sentence(called: Called) -> None:
    code, out, _ = called("list", "scenarios")
    words = " ".join(out.split())
    assert code == 0
    assert all(name in words for name in NAMES)
    assert (
        "tutorial The scenario of docs/tutorial.md: three ways to add up the updates of twelve users, in"
        in words
    )
    assert "Fig. 12: asynchronous LightSecAgg with c_l = 2^2 .. 2^28 levels" in words
    assert "App. F.5: N = 100 users" in words
    assert all(text.endswith((".", "?")) for _, text in shipped.listed())


def test_version(called: Called) -> None:
    assert called("--version") == (0, f"simfl {simfl.__version__}\n", "")


def completed(shell: str, words: str, cwd: Path) -> str:
    more = {"_SIMFL_COMPLETE": f"complete_{shell}", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    more |= {
        "_TYPER_COMPLETE_ARGS": words,
        "PYTHONPATH": str(ROOT),
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    code = "from simfl.cli import main; main()"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env={**os.environ, **more})
    assert done.stderr == ""
    return done.stdout


@pytest.mark.ci
def test_shells_complete_names_and_files(tmp_path: Path) -> None:
    (tmp_path / "synced.yaml").write_text("")
    assert completed("bash", "simfl run syn", tmp_path).split() == ["sync_breakdown", "synced.yaml"]
    assert completed("bash", "simfl init syn", tmp_path).split() == ["sync_breakdown"]
    assert completed("bash", "simfl sweep studies/w", tmp_path).split() == [
        "studies/which_answer",
        "studies/which_links",
    ]
    assert completed("bash", "simfl lis", tmp_path).split() == ["list"]
    assert "users are lost" not in completed("bash", "simfl run whole", tmp_path)
    assert '"whole_batches":"What becomes of' in completed("zsh", "simfl run whole", tmp_path)
    assert completed("fish", "simfl run whole", tmp_path).startswith("whole_batches\tWhat becomes of")
    assert completed("bash", "simfl run /nowhere", tmp_path).split() == []  # bash looks for files itself


@pytest.mark.ci
def test_completion_of_a_real_bash(tmp_path: Path) -> None:
    """What --show-completion prints makes bash complete."""
    simfl_here = tmp_path / "simfl"
    simfl_here.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m simfl "$@"\n')
    simfl_here.chmod(0o755)
    asks = (
        'eval "$(_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION=1 simfl --show-completion bash)"\n'
        "COMP_WORDS=(simfl check who) COMP_CWORD=2\n"
        "$(complete -p simfl | sed 's/.*-F \\([^ ]*\\) .*/\\1/') simfl who check\n"
        'echo "${COMPREPLY[@]}"\n'
    )
    more = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", asks], capture_output=True, text=True, env={**os.environ, **more})
    assert (done.stdout.strip(), done.stderr) == ("whole_batches", "")


@pytest.mark.parametrize("command", ["explore", "privacy proof"])
def test_random_names_its_extra(command: str, called: Called, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    code, _, errors = called(*command.split(), "lightsecagg", "--random", "3")
    assert code == 2
    assert "random needs hypothesis: pip install 'simfl[explore]'" in errors


def test_proof_takes_a_name_of_both_as_the_protocol(called: Called) -> None:
    code, out, _ = called("privacy", "proof", "assistants", "--users", "3", "--colluders", "0")
    assert (code, out.startswith("assistants, 3 users")) == (0, True)
