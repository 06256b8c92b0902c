"""`simfl compare`: the table, JSON, and one message for each thing that cannot be compared."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from simfl.cli import main
from simfl.config.digests import SUMS
from simfl.reports.terminal import show
from simfl.runs.results.drift import Drift
from simfl.runs.results.summary import Summary
from simfl.studies.compared import compare
from simfl.studies.comparison.cases import HEADLINE, Case, Comparison, Side
from simfl.studies.comparison.page import page
from simfl.studies.comparison.report import MAX_POINTS, MAX_SETTINGS, comparison_report
from simfl.trace.rows import PHASES
from tests.reports.test_terminal import round_, row, summary


def told(comparison: Comparison, width: int = 80) -> str:
    console = Console(file=StringIO(), width=width)
    show(console, comparison_report(comparison))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def comparison(*contents: dict[str, Any], settings: list[dict[str, Any]] | None = None) -> Comparison:
    """Hand-made summaries, named a, b, c."""
    sides = []
    for k, content in enumerate(contents):
        made = Summary.model_validate(content)
        noisy = made.clock == "measured"
        cases = {("", name): Case.of_runs([p], noisy) for name, p in made.protocols.items()}
        some = settings[k] if settings else {}
        side = Side("abc"[k], "abc"[k], "run", "rounds" if noisy else "", some, cases, made.clock)
        sides.append(replace(side, drifts=[made.drift]))
    return Comparison(sides)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """What is said where nothing is compared: one message and exit code 2."""
    with pytest.raises(SystemExit) as left:
        main(["compare", *map(str, arguments)])
    out, errors = capsys.readouterr()
    assert (left.value.code, out) == (2, "")
    return errors.strip()


def ended(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[Any, str, str]:
    """Compare; return the exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as left:
        main(["compare", *map(str, arguments)])
    return left.value.code, *capsys.readouterr()


def printed(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    code, out, errors = ended(capsys, *arguments)
    assert (code, errors) == (0, "")
    return out


# --- the table ----------------------------------------------------------------------------------
def test_a_grid_an_entry_and_a_column_a_run() -> None:
    slow, quick = summary(secagg=[round_(0)]), summary(secagg=[round_(0, end_s=3.5)])
    page = told(comparison(slow, quick))
    assert row(page, "per aggregate") == ["7.000", "3.500"]
    assert row(page, "verdict") == ["reference", "faster 2.0 x"]
    assert row(page, "offline") == ["1.000", "1.000"]
    assert row(page, "critical: upload") == ["2.500", "2.500"]
    assert row(page, "MB up/aggregate") == ["2.000", "2.000"]
    assert page.splitlines()[0] == "b against a: seconds of virtual time per aggregate"
    assert "Against a, b is faster in secagg 2.0 x." in page
    assert "tie: no shown digit\n  differs" in page


def test_measured_times_have_intervals_and_ties() -> None:
    rounds = [round_(k, end_s=10.0 * k + 7 + k % 2) for k in range(4)]
    noisy = {**summary(secagg=rounds), "clock": "measured"}
    page = told(comparison(noisy, summary(secagg=[round_(0)])))
    assert row(page, "per aggregate") == ["7.5±0.9", "7.000"]
    assert row(page, "verdict") == ["reference", "tie"]
    assert "over the rounds of a run" in page
    assert "Against a, b is in a tie in secagg." in page


def test_runs_at_different_speeds_have_a_warning() -> None:
    runs = []
    for ns in (100, 101, 130):
        drift = Drift.of({"secagg": [ns, ns, ns]})
        assert drift is not None
        runs.append({**summary(secagg=[round_(0)]), "clock": "measured", "drift": drift.model_dump()})
    steady, moved = comparison(*runs[:2]), comparison(*runs)
    warning = "The machine's speed moved by 30 % during these runs: measured times mix"
    assert warning in " ".join(told(moved).split())
    assert warning.replace("'", "&#39;") in page(moved)
    assert moved.dump()["moved"].startswith(warning)
    assert "speed moved" not in told(steady) + page(steady)
    assert steady.dump()["moved"] is None


def test_a_missing_entry_is_named() -> None:
    both, one = summary(fedavg=[round_(0)], secagg=[round_(0)]), summary(secagg=[round_(0)])
    page = told(comparison(both, one))
    assert "Only in a: fedavg" in page
    page = told(comparison(one, both, both))
    assert "not in a, so no verdict" in page
    assert row(page[page.index("fedavg") :], "verdict") == ["-", "-"]


def test_other_rounds_are_marked() -> None:
    page = told(comparison(summary(secagg=[round_(0), round_(1)]), summary(secagg=[round_(0)])))
    assert row(page, "total †") == ["7.000", "7.000"]
    assert "† The entries completed different rounds: the time per aggregate counts all." in page
    assert "†" not in told(comparison(*[summary(secagg=[round_(0)])] * 2))
    page = told(comparison(*(summary({"0": 1}, secagg=[round_(0)] * n) for n in (1, 2))))
    assert "completed different aggregations" in page


def test_no_aggregate_is_not_compared() -> None:
    page = told(comparison(summary(secagg=[round_(0)]), summary(secagg=[round_(0, reason="upload")])))
    assert row(page, "per aggregate") == ["7.000", "-"]
    assert row(page, "verdict") == ["reference", "-"]
    assert "b is not comparable: no aggregate" in page


def test_settings_that_differ_are_listed_up_to_a_bound() -> None:
    many = [{f"key_{k:02}": value for k in range(MAX_SETTINGS + 3)} for value in (1, 2, 1)]
    content = summary(secagg=[round_(0)])
    page = told(comparison(content, content, content, settings=many))
    assert f"{MAX_SETTINGS + 3} settings differ:" in page
    assert "key_00: 1 in a, c; 2 in b" in page
    assert f"key_{MAX_SETTINGS}" not in page
    assert "... and 3 more" in page
    assert "No setting differs." in told(comparison(content, content))


@pytest.mark.parametrize("width", [24, 40, 80])
def test_any_width_holds_every_figure(width: int) -> None:
    contents = [summary(**{f"lightsecagg_{k}": [round_(0)] for k in range(3)})] * 3
    page = told(comparison(*contents, settings=[{"dropout": "x" * 300}, {"dropout": "y"}, {}]), width)
    assert page.count("reference") == 3
    assert max(map(len, page.splitlines())) <= max(width, 35)  # "critical: recovery 0.000" is not cut


def test_control_characters_are_spelled_out() -> None:
    evil = "\x1b[31m"
    content = summary(secagg=[round_(0)])
    page = told(comparison(content, content, settings=[{evil: evil}, {evil: "x"}]))
    assert "\x1b" not in page
    assert r"\x1b[31m: \x1b[31m in a; x in b" in page


def test_the_closing_sentence_names_few_entries_and_counts_many() -> None:
    def content(*ends: float) -> dict[str, Any]:
        return summary(**{f"e{k}": [round_(0, end_s=end)] for k, end in enumerate(ends)})

    page = told(comparison(content(7, 7, 7), content(6, 7, 9), content(1, 1, 1)))
    assert "Against a, b is faster in e0 by 14 %, and in a tie in e1, and slower in e2 by 29 %; c is" in (
        " ".join(page.split())
    )
    page = told(comparison(content(7, 7, 7, 7, 7), content(6, 6, 7, 7, 9)))
    assert "b is faster in 2 of 5, and in a tie in 2 of 5, and slower in 1 of 5." in " ".join(page.split())


# --- folders ------------------------------------------------------------------------------------
@pytest.mark.ci
def test_runs_are_compared(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = printed(capsys, folders / "base", folders / "links")
    assert "1 setting differs:\n  network.users.uplink_mbps: 8.0 in base; 80.0 in links\n" in page
    assert "Against base, links is faster in fedavg " in page
    assert max(map(len, page.splitlines())) <= 80
    back = printed(capsys, folders / "links", folders / "base")
    assert "Against links, base is slower in fedavg " in back


@pytest.mark.ci
def test_repeats_are_one_thing_with_intervals_over_runs(
    folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = printed(capsys, folders / "base", folders / "repeats")
    assert "over the runs of repeats" in page
    for match in compare(folders / "base", folders / "repeats").matches:
        means = [case and case.estimates[HEADLINE] for case in match.cases]
        assert [mean and (mean.n, mean.half is None) for mean in means] == [(1, True), (2, False)]
    assert "clock.kind: modelled in base; measured in repeats" in page


@pytest.mark.ci
def test_repeats_of_two_scenarios_are_refused(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folders / "repeats", tmp_path / "mixed")
    shutil.copytree(folders / "links", tmp_path / "mixed" / "repeat-3")
    assert "these are no repeats" in refused(capsys, tmp_path / "mixed", folders / "base")


def test_unfinished_repeats_are_refused(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "repeats" / "repeat-1").mkdir(parents=True)
    assert "none of its repeats is finished" in refused(capsys, folders / "base", tmp_path / "repeats")


def test_a_repeat_that_is_not_finished_is_left_out(folders: Path, tmp_path: Path) -> None:
    shutil.copytree(folders / "repeats", tmp_path / "repeats")
    shutil.copytree(folders / "repeats" / "repeat-1", tmp_path / "repeats" / "repeat-3")
    (tmp_path / "repeats" / "repeat-3" / "unfinished").mkdir()
    for match in compare(folders / "base", tmp_path / "repeats").matches:
        case = match.cases[1]
        assert case is not None
        assert len(case.protocols) == 2


def test_folders_of_one_name_have_different_labels(folders: Path, tmp_path: Path) -> None:
    shutil.copytree(folders / "base", tmp_path / "base")
    labels = [side.label for side in compare(folders / "base", tmp_path / "base").sides]
    assert labels == [str(folders / "base"), str(tmp_path / "base")]


def test_json_has_verdicts_estimates_and_settings(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads(printed(capsys, folders / "base", folders / "links", "--format", "json"))
    assert content["reference"] == "base"
    assert content["settings"] == {"network.users.uplink_mbps": {"base": 8.0, "links": 80.0}}
    assert [entry["entry"] for entry in content["entries"]] == ["fedavg", "secagg"]
    for entry in content["entries"]:
        assert entry["verdicts"]["links"]["relation"] == "faster"
        phases = {m["phase"] for m in entry["measures"]["links"] if m["measure"] == "critical_s"}
        assert phases == set(PHASES)


def test_sweeps_are_compared_at_the_points_that_both_have(
    folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = printed(capsys, folders / "narrow", folders / "wide")
    first, second = row(page, "  fedavg")
    assert second == f"{first}, tie"
    assert "Only in wide: fedavg at dropout.rate=0.2, lightsecagg at dropout.rate=0.2" in " ".join(
        page.split()
    )
    assert "No setting differs." in page
    assert "over the seeds of a sweep" in page
    assert "Against narrow, wide is in a tie in 2 of 2." in page


def test_a_wide_sweep_is_cut_with_a_word(folders: Path) -> None:
    cases = {(f"n={n}", "a"): Case.of_means({}) for n in range(MAX_POINTS + 2)}
    page = told(Comparison([Side(label, label, "sweep", "", {}, cases) for label in "ab"]))
    assert f"... and 2 of {MAX_POINTS + 2} points more" in page


def test_a_sweep_without_its_cells_is_compared_without_settings(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("narrow", "wide"):
        (tmp_path / name).mkdir()
        shutil.copy(folders / name / "means.csv", tmp_path / name)
    code, out, errors = ended(capsys, tmp_path / "narrow", tmp_path / "wide")
    assert code == 0
    assert "is in a tie in 2 of 2" in out
    assert errors.startswith("simfl: no SHA256SUMS in ")


# --- refusals -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["base"], "needs at least two folders, not 1"),
        (["base", "base"], "base is named twice"),
        (["base", "links/../base"], "is named twice"),
        (["base", "nowhere"], "nowhere: there is no such folder"),
        (["base", "base/summary.json"], "summary.json: there is no such folder"),
        (["base", "narrow"], "compare runs with runs, and sweeps with sweeps"),
        (["base", "other"], "base has fedavg, secagg; other has lightsecagg"),
        (["narrow", "elsewhere"], "elsewhere has fedavg at rounds=2"),
        (["base", "narrow/cells"], "cells is no run's folder; "),
    ],
)
def test_a_bad_comparison_ends_in_one_message(
    folders: Path, capsys: pytest.CaptureFixture[str], names: list[str], says: str
) -> None:
    message = refused(capsys, *(f"{folders}/{name}" for name in names))
    assert says in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "file", "text", "says"),
    [
        ("base", "summary.json", "{", "summary.json: cannot be read"),
        ("base", "summary.json", None, "summary.json: is missing"),
        ("base", "resolved.yaml", "rounds: x", "resolved.yaml"),
        ("narrow", "means.csv", "a,b\n1,2\n", "means.csv: not a table of a sweep"),
    ],
)
def test_damaged_folders_end_in_one_message(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    name: str, file: str, text: str | None, says: str,
) -> None:  # fmt: skip
    damaged = tmp_path / "damaged"
    shutil.copytree(folders / name, damaged)
    (damaged / file).unlink() if text is None else (damaged / file).write_text(text)
    other = folders / ("links" if name == "base" else "wide")
    assert f"{file}: " in refused(capsys, other, damaged)
    (damaged / SUMS).unlink()  # as of an earlier simfl: its content is read
    assert says in refused(capsys, other, damaged)


def test_a_summary_of_another_run_is_refused(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folders / "base", tmp_path / "mixed")
    (tmp_path / "mixed" / SUMS).unlink()
    summary_of = json.loads((folders / "base" / "summary.json").read_text())
    (tmp_path / "mixed" / "summary.json").write_text(json.dumps({**summary_of, "seed": 77}))
    assert "not the files of one run" in refused(capsys, folders / "links", tmp_path / "mixed")
