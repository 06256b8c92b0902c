"""From a study to its cells: every one, in order, and none that is wrong."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from simfl.config.yaml_tree import dump
from simfl.errors import ScenarioError
from simfl.studies.sweep import plan
from simfl.studies.sweep.plan import check, make_plan
from tests.engine.harness import ROOT
from tests.studies.sweep.small import BASE, study


def test_cells_are_each_with_each_of_cells_grid_and_seeds(tmp_path: Path) -> None:
    cells = [{"population.users": 6}, {"population.users": 7, "privacy": {"T": 1, "D": 2}}]
    grid = {"dropout.rate": [0.1, 0.2, 0.3], "rounds": [1, 2]}
    made = make_plan(study(tmp_path, cells=cells, grid=grid, seeds=[4, 2]))
    expected = [
        (users, T, rate, rounds, seed)
        for (users, T), rate, rounds, seed in product([(6, 2), (7, 1)], [0.1, 0.2, 0.3], [1, 2], [4, 2])
    ]
    found = [
        (s.population.users, s.privacy.T, s.dropout.rate, s.rounds, s.seed)
        for s in (cell.scenario for cell in made.cells)
        if s.privacy and s.dropout.kind == "rate"
    ]
    assert found == expected
    assert made.keys == ("population.users", "dropout.rate", "rounds", "privacy")
    assert made.label(made.cells[0]) == "population.users=6, dropout.rate=0.1, rounds=1, seed=4"
    assert made.label(made.cells[-1]) == (
        'population.users=7, privacy={"T": 1, "D": 2}, dropout.rate=0.3, rounds=2, seed=2'
    )


def test_without_axes_there_is_one_point(tmp_path: Path) -> None:
    made = make_plan(study(tmp_path, grid={}, seeds=3))
    assert made.points == ({},)
    assert [cell.seed for cell in made.cells] == [5, 6, 7]


def test_a_problem_of_some_points_names_them(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as error:
        make_plan(study(tmp_path, grid={"privacy.T": [2, 4, 5], "rounds": [1, 2]}))
    said = [f"{p.path}: {p.message}" for p in error.value.problems]
    assert said[0].startswith("grid.privacy.T: T=4 must be below U=4")
    assert said[0].endswith(" (at privacy.T=4, rounds=1 and 1 more)")
    assert len([text for text in said if "T=4" in text]) == 1


def test_a_problem_of_all_points_is_reported_once(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as error:
        make_plan(study(tmp_path, base={**BASE, "roundz": 1}))
    (problem,) = error.value.problems
    assert problem.path == "base.roundz"
    assert "(at" not in problem.message


def test_more_problems_than_a_person_reads_are_counted(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as error:
        make_plan(study(tmp_path, grid={"rounds": [-i for i in range(1, 24)]}))
    assert len(error.value.problems) == plan.SHOWN_PROBLEMS + 1
    assert str(error.value).endswith("... and 13 more problems")


def test_a_slip_that_makes_millions_of_cells_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="must have at most 100000 cells, not 2000000"):
        make_plan(study(tmp_path, seeds=10**6))


def test_building_finds_problems_of_data_and_files(tmp_path: Path) -> None:
    made = make_plan(study(tmp_path, grid={"quantization.levels": [65536, 2**30], "rounds": [1, 2]}))
    counted: list[int] = []
    with pytest.raises(ScenarioError, match=r"would wrap around.*levels=1073741824, rounds=1 and 1 more"):
        check(made, made.cells, counted.append)
    assert counted == [1, 2, 3, 4]
    check(made, [cell for cell in made.cells if cell.point < 2])


def test_points_that_cannot_be_built_are_reported(tmp_path: Path) -> None:
    made = make_plan(study(tmp_path, grid={"profile": ["nosuch"], "rounds": [1]}))
    with pytest.raises(ScenarioError, match="nosuch"):
        check(made, made.cells)
    made = make_plan(study(tmp_path, grid={"clock": [{"recorded": "/nowhere"}]}))
    with pytest.raises(ScenarioError, match="/nowhere"):
        check(made, made.cells)


TWINS = (ROOT / "examples" / "twins.py").read_text(encoding="utf-8")


def test_a_file_is_relative_to_the_file_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base's of its folder, a setting's of the study's; none of the working directory is executed."""
    for folder in ("base", "study", "here"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "twins.py").write_text(TWINS)
    (tmp_path / "here" / "twins.py").write_text("open('executed', 'w').close()\n")
    monkeypatch.chdir(tmp_path / "here")
    own = {"partition": {"module": "twins.py:Twins", "group": 3}}
    (tmp_path / "base" / "base.yaml").write_text(dump({**BASE, "learning": {**BASE["learning"], **own}}))
    other = {"module": "twins.py:Twins", "group": 2}
    made = make_plan(
        study(
            tmp_path / "study", base="../base/base.yaml", grid={}, seeds=1,
            cells=[{"rounds": 1}, {"rounds": 1, "learning.partition": other}],
        )
    )  # fmt: skip
    named = [cell.scenario.learning.partition.module for cell in made.cells]  # type: ignore[union-attr]
    assert named == [f"{tmp_path}/base/twins.py:Twins", f"{tmp_path}/study/twins.py:Twins"]
    check(made, made.cells)
    assert not (tmp_path / "here" / "executed").exists()


STUDIES = sorted((ROOT / "scenarios" / "studies").glob("*.yaml"))


def test_there_are_shipped_studies() -> None:
    names = {"dp", "multi_round", "paper_size", "savings", "users_and_losses", "which_answer", "which_links"}
    assert {path.stem for path in STUDIES} == names


@pytest.mark.ci(but=["multi_round"])
@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_shipped_study_is_good(path: Path) -> None:
    made = make_plan(path)
    check(made, made.cells[-1:])
