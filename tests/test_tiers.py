"""The tiers of the suite: what each command runs, and which cases a mark leaves out of `make test`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sizes import left_to_ci

ROOT = Path(__file__).parents[1]


def test_each_command_has_its_tier() -> None:
    """CI runs all but what is slow; no target takes a mark away from the tier above it."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipes = dict(re.findall(r"^(test[a-z-]*):.*\n\t(.*pytest.*)$", makefile, re.M))
    command = "$(BIN)/python -m pytest -n auto --dist loadfile"
    assert recipes == {
        "test": command,
        "test-ci": f"TIER=ci {command} --at-least $(AT_LEAST)",
        "test-all": f'TIER=all {command} -m ""',
    }


def test_ci_ends_with_a_number_of_tests() -> None:
    *_, last = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert re.fullmatch(r"make test-ci AT_LEAST=[1-9]\d{3}", last)


def begin_pytest(*options: str | Path, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--assert=plain", *options]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.ci
@pytest.mark.parametrize("tier", ["quick", "ci", "all"])
def test_ids_are_equal_in_two_processes(tier: str) -> None:
    """Collects in two processes with other hash seeds, as xdist's workers have, which share no work if an id
    holds an address or a case comes from a set."""
    marks = ["-m", ""] if tier == "all" else []
    options = ["--collect-only", "--disable-warnings", *marks]
    both = [begin_pytest(*options, TIER=tier, PYTHONHASHSEED=seed) for seed in "12"]
    outputs = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    first, second = ([line for line in output.splitlines() if "::" in line] for output in outputs)
    assert len(first) > 7000
    assert first == second


@pytest.mark.ci
@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_run_of_too_few_tests_fails(tmp_path: Path, workers: str) -> None:
    """Of two tests one is skipped, which `--at-least` does not count."""
    file = tmp_path / "test_both.py"
    file.write_text("import pytest\n\ndef test_a(): pass\n\ndef test_b(): pytest.skip()\n")
    options = ["-p", "tests.conftest", "-n", workers, file]
    one, two = (begin_pytest(*options, "--at-least", number) for number in "12")
    printed, complaint = (process.communicate()[0] for process in (one, two))
    assert (one.returncode, two.returncode) == (0, 1), printed + complaint
    assert "--at-least: 1 tests passed, fewer than 2" in complaint


def cases(*names: str, **words: list[str]) -> list[Any]:
    mark = pytest.mark.ci(**words).mark
    return [SimpleNamespace(name=name, path="a file", iter_markers=lambda _: [mark]) for name in names]


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ({}, ["test_x[a-1]", "test_x[b-1]"]),
        ({"but": ["a-"]}, ["test_x[b-1]"]),
        ({"only": ["a-"]}, ["test_x[a-1]"]),
        ({"but": ["1"]}, []),
    ],
)
def test_a_mark_leaves_cases_to_ci(words: dict[str, list[str]], left: list[str]) -> None:
    assert [item.name for item in left_to_ci(cases("test_x[a-1]", "test_x[b-1]", **words))] == left


def test_a_word_that_no_case_has_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match=r"no case has it.*'c'"):
        left_to_ci(cases("test_a[a]", "test_a[b]", but=["a", "c"]))
