"""The pytest plugin, in sessions of pytest of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import simfl
import simfl.pytest
from simfl.errors import BadInput
from simfl.scenario.load import load, resolved_yaml
from simfl.studies.explore import pinned
from simfl.studies.explore.rounds import explore, make_cohort
from tests.engine.harness import ROOT, SIX, SYNC, run, script

BROKEN = '''
from typing import Literal

from simfl.protocols.fedavg import FedAvg, FedAvgServer
from simfl.protocols.machine import Member, Result


class Forgetful(FedAvgServer):
    """Counts its first user twice."""

    def average(self, got):
        weights = [m.weight for m in got.values()]
        weights[0] *= 2
        total = self.ops.real_sum([m.delta for m in got.values()], weights)
        return [Result(total, self.ops.divide(total, sum(weights)), tuple(map(Member, got)))]


class Broken(FedAvg):
    protocol: Literal["broken"] = "broken"

    def server(self, users, p, ops, entropy):
        return Forgetful(users, p.d, ops, p.batches)
'''
WRONG_SIGN = '''
from typing import Literal

from simfl.protocols.pairwise_masks import SecAggClient
from simfl.protocols.secagg import SecAgg


class AllPlus(SecAggClient):
    """Adds the masks that it should subtract."""

    def hold_shares(self, inbox):
        mask = self.ops.mask
        self.ops.mask = lambda x, seeds, signs: mask(x, seeds, [1] * len(signs))
        try:
            return super().hold_shares(inbox)
        finally:
            self.ops.mask = mask


class WrongSign(SecAgg):
    protocol: Literal["wrong_sign"] = "wrong_sign"

    def client(self, user, p, ops, entropy):
        return AllPlus(user, p, ops, entropy)
'''

TESTS = """
import simfl.pytest
from simfl.pytest import scenario

@scenario("small.yaml", rounds=2, **{"privacy.U": 3})
def test_sums(result):
    assert result.scenario.privacy.U == 3
    assert [len(p.completed) for p in result.protocols.values()] == [2, 2, 2]
    simfl.pytest.assert_exact(result)

@scenario("small.yaml", payload="shadow")
class TestOfAClass:
    def test_here(self, result):
        assert result.scenario.rounds == 1

def test_without_a_scenario(result): pass

@scenario("small.yaml", roundz=2)
def test_mistaken(result): pass

@scenario("small.yaml", protocols={"broken": {"module": "broken.py:Broken"}}, rounds=2)
def test_broken(result):
    simfl.pytest.assert_exact(result)

def test_text(explored):
    result = explored("user 1 lost before upload, user 2 late at recovery (timeout)", "lightsecagg")
    assert result.protocols["lightsecagg"].rounds[0].dropped.upload == 1

def test_fault_of_file(explored):
    explored("explored.yaml")

def test_fault_of_text(explored):
    explored(VIOLATION, "wrong_sign.py:WrongSign", users=4)
"""


def pytest_in(folder: Path, *arguments: str) -> str:
    """What pytest prints with the plugin, in a process of its own: one forgets what another has imported."""
    command = [sys.executable, "-m", "pytest", "-p", "simfl.pytest", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def violation(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with what the explorer finds of a fault, and its text."""
    folder = tmp_path_factory.mktemp("team")
    (folder / "wrong_sign.py").write_text(WRONG_SIGN)
    cohort = make_cohort(f"{folder}/wrong_sign.py:WrongSign", 4)
    found = explore(cohort).violation
    assert found is not None
    (folder / "explored.yaml").write_text(resolved_yaml(cohort.replayable(found.pattern, found.detect)))
    return folder, str(found)


@pytest.fixture(scope="module")
def printed(violation: tuple[Path, str]) -> str:
    folder, text = violation
    (folder / "small.yaml").write_text(resolved_yaml(load(SYNC, SIX)))
    (folder / "broken.py").write_text(BROKEN)
    (folder / "test_team.py").write_text(TESTS.replace("VIOLATION", repr(text)))
    return pytest_in(folder, "-rA")


@pytest.mark.ci
def test_a_test_gets_the_result_of_its_scenario(printed: str) -> None:
    assert "PASSED test_team.py::test_sums" in printed
    assert "PASSED test_team.py::TestOfAClass::test_here" in printed


@pytest.mark.ci
def test_without_a_scenario_the_fixture_says_so(printed: str) -> None:
    assert "ERROR test_team.py::test_without_a_scenario" in printed
    assert "`result` is the fixture of tests with @simfl.pytest.scenario(FILE)\n" in printed


@pytest.mark.ci
def test_a_mistake_in_a_scenario_is_the_error(printed: str) -> None:
    assert "ERROR test_team.py::test_mistaken" in printed
    assert "did you mean 'rounds'" in printed


@pytest.mark.ci
def test_a_wrong_sum_is_told_with_its_round(printed: str) -> None:
    assert "FAILED test_team.py::test_broken" in printed
    told = (
        "broken, round {}: the aggregate differs from the sum over its 6 members in [1-9][0-9]+ coordinates"
    )
    assert re.search(rf"{told.format(0)}\nE +{told.format(1)}", printed)


@pytest.mark.ci
def test_a_pattern_is_replayed_as_it_is_printed(printed: str) -> None:
    assert "PASSED test_team.py::test_text" in printed


@pytest.mark.ci
def test_a_fault_breaks_its_pinned_pattern(printed: str) -> None:
    assert "FAILED test_team.py::test_fault_of_file" in printed
    assert "FAILED test_team.py::test_fault_of_text" in printed
    assert (
        printed.count("E       AssertionError: WrongSign, nobody lost (timeout): the aggregate is not") == 2
    )


def test_no_aggregate_is_not_an_exact_one() -> None:
    lost = script(*((user, 0, "upload", "before_send") for user in range(4)))
    aborted = run({**SIX, "dropout": lost, "protocols": ["fedavg", "lightsecagg"]})
    with pytest.raises(AssertionError, match=r"^lightsecagg has no aggregate: upload: 2 users answered, 4"):
        simfl.pytest.assert_exact(aborted)


def test_a_sum_beyond_the_field_is_not_exact() -> None:
    (name,) = (result := run()).measured
    result.measured[name][0] = simfl.runs.results.summary.Measurement(aggregate_exact=True, wrapped=3)
    with pytest.raises(AssertionError, match="round 0: the aggregate 3 coordinates of the sum left"):
        simfl.pytest.assert_exact(result)


@pytest.mark.ci(but=["told"])
@pytest.mark.parametrize(("protocol", "detect"), [("secagg", "told"), ("lightsecagg_async", "flapping")])
def test_a_written_pattern_is_found_again(protocol: str, detect: str, tmp_path: Path) -> None:
    cohort = make_cohort(protocol, 4)
    fates = cohort.fates(detect)  # type: ignore[arg-type]
    pattern = (None, fates[0], None, fates[-1])
    file = tmp_path / "explored.yaml"
    scenario = cohort.replayable(pattern, detect)  # type: ignore[arg-type]
    file.write_text(f"# a law\n{resolved_yaml(scenario)}")
    found = pinned.written(file)
    assert (found.pattern, found.detect) == (pattern, detect)
    assert found.scenario == scenario
    assert found.violations() == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("user 1 lost before upload", "must be a pattern that ends with timeout or told in brackets"),
        (
            "user 1 lost before lunch (told)",
            "'user 1 lost before lunch': must be user 0 to 3 and one of: lost",
        ),
        ("user 4 lost before upload (told)", "must be user 0 to 3"),
    ],
)
def test_another_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        pinned.described(text, "secagg")


def test_another_scenario_is_refused() -> None:
    with pytest.raises(BadInput, match=r"tutorial\.yaml: not a scenario that simfl explore writes"):
        pinned.written(ROOT / "scenarios" / "tutorial.yaml")


@pytest.mark.ci
def test_it_costs_nothing_where_it_is_not_used(tmp_path: Path) -> None:
    """Neither torch nor numpy nor any other part of simfl is imported by a session without a scenario."""
    (tmp_path / "test_plain.py").write_text("def test_plain(): pass\n")
    program = """
import sys, pytest
before = set(sys.modules)
assert pytest.main(["-q", "-p", "simfl.pytest", "-p", "no:cacheprovider", "."]) == 0
print(sorted(name for name in set(sys.modules) - before if name.split(".")[0] in ("simfl", "numpy", "torch")))
"""
    printed = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert printed.splitlines()[-1] == "['simfl', 'simfl.moved', 'simfl.pytest', 'simfl.version']"
