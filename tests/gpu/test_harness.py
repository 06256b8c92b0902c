"""The pieces of `make gpu`, on any machine: stages, their limits, what is written and the table."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu, gpu_cases
from simfl.learning.models.facts import facts

ROOT = Path(__file__).parents[2]


def stage(code: str, case: str = "") -> gpu.Stage:
    return gpu.Stage("piece", 30, (sys.executable, "-c", code), case)


def test_a_stage_that_fails_is_told() -> None:
    assert gpu.carried_out(stage("print(1)"), 30).told == "ok"
    ended = gpu.carried_out(stage("print(1); raise SystemExit('no such thing')"), 30)
    assert ended.told == "exit code 1: no such thing"
    assert ended.output == "1\n"


def test_a_stage_finds_what_the_caller_carried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "carried.py").write_text("print('here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    ended = gpu.carried_out(stage("import carried, simfl; print(simfl.__file__)"), 30)
    assert ended.output == f"here\n{ROOT / 'simfl' / '__init__.py'}\n"


def test_a_stage_is_stopped_with_what_it_started() -> None:
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    start = time.perf_counter()
    ended = gpu.carried_out(stage(f"print('known', flush=True); {child}"), 1.5)
    assert ended.told.startswith("stopped after ")
    assert ended.output == "known\n"
    assert time.perf_counter() - start < 20


def test_lines_of_a_case_add_up() -> None:
    lines = ('{"goal": 3, "clients_per_s": {"plain": 1.5}}', '{"clients_per_s": {"loop": 2}}', '{"chunk": 7}',
             '{"failed": {"graphs": "no"}}', "[1]", '{"failed": {"batched": "neither"}}')  # fmt: skip
    assert gpu.figures("\n".join(["noise", *lines, '{"cut o'])) == {
        "goal": 3,
        "chunk": 7,
        "clients_per_s": {"plain": 1.5, "loop": 2},
        "failed": {"graphs": "no", "batched": "neither"},
    }
    assert gpu.figures("") == {"clients_per_s": {}}


def test_stages_fit_into_eight_minutes() -> None:
    for device in ("cpu", "cuda"):
        planned = gpu.stages(device)
        assert [one.case for one in planned if one.case] == list(gpu_cases.CASES) == list(gpu.CASE_NAMES)
        assert sum(one.limit_s for one in planned) <= gpu.TOTAL_S
        assert gpu.TOTAL_S + 2 * len(planned) < 480
        runs = [one.command for one in planned if "run.py" in one.command]
        assert len(runs) == 3
        assert all(f"learning.device={device}" in words for words in runs)


def test_results_are_written_after_every_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, seen = tmp_path / "deep" / "gpu.json", list[int]()
    rates = '{"goal": 10, "clients_per_s": {"plain": 2, "loop": 3, "vectorised": 8}, "peak_bytes": 2e9'
    figures = rates + ', "failed": {"graphs": "no such device"}}'

    def planned(device: str) -> list[gpu.Stage]:
        look = f"import json; print(len(json.load(open({str(file)!r}))['stages']))"
        return [stage(f"print('{figures}')", "a case"), stage("1 / 0"), stage(look)]

    kept = gpu.write
    monkeypatch.setattr(
        gpu, "write", lambda found, out: (kept(found, out), seen.append(len(found["stages"])))
    )
    monkeypatch.setattr(gpu, "stages", planned)
    monkeypatch.setattr(gpu, "machine", lambda device: {"device": device})
    assert gpu.main(["--device", "cpu", "--out", str(file)]) == 1
    assert seen == [1, 2, 3, 3]
    found = json.loads(file.read_text())
    assert [one["told"] for one in found["stages"]] == [
        "ok",
        "exit code 1: ZeroDivisionError: division by zero",
        "ok",
    ]
    assert found["stages"][1]["end"][-1] == "ZeroDivisionError: division by zero"
    assert list(tmp_path.rglob("*.partial")) == []
    printed = capsys.readouterr().out
    row = next(line.split() for line in printed.splitlines() if line.startswith("a case"))
    rates = ["2.0", "3.0", "8.0", "-", "-", "failed"]
    assert row == ["a", "case", "10", *rates, "vectorised", "4.00", "2.00", "-", "-"]
    assert "a case, graphs: no such device" in printed.splitlines()


def test_a_table_of_nothing_known_has_its_rows() -> None:
    found: dict[str, Any] = {"device": "cuda", "stages": [], "cases": {"logistic": gpu.figures("")}}
    rows = [line.split() for line in gpu.table(found).splitlines()]
    assert ["logistic", *"-" * 12] in rows


def test_missing_modules_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu.missing(("json", "no_such_module")) == ["no_such_module"]
    monkeypatch.setattr(gpu, "NEEDED", ("torch", "no_such_module"))
    with pytest.raises(SystemExit, match=r"not installed: no_such_module; docs/gpu\.md"):
        gpu.main(["--device", "cpu"])


def test_the_cnn_of_pfl_by_hand() -> None:
    known = facts(gpu_cases.PflCnn(), (3, 32, 32), 10)
    convolutions = [(3, 32), (32, 32), (32, 64), (64, 64)]
    assert known.d == sum(9 * a * b + b for a, b in convolutions) + (64 * 64 * 128 + 128) + 1290


def test_a_case_tells_each_way(capsys: pytest.CaptureFixture[str]) -> None:
    gpu_cases.measure("logistic", "cpu")
    found = gpu.figures(capsys.readouterr().out)
    assert list(found["clients_per_s"]) == ["plain", "loop", "vectorised", "closed_form", "batched"]
    assert min(found["clients_per_s"].values()) > 0
    assert found["predicted_bytes"] > 0
    assert found["failed"] == {"graphs": "ValueError: CUDA graphs need a GPU"}


@pytest.mark.parametrize(("fails", "code"), [("batched", None), ("loop", "failed: loop")])
def test_a_way_that_fails_stops_no_other(
    fails: str, code: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = gpu_cases.made

    def broken(way: str, *arguments: Any) -> Any:
        if way == fails:
            raise RuntimeError("no kernel\nand much more")
        return made(way, *arguments)

    monkeypatch.setattr(gpu_cases, "made", broken)
    with pytest.raises(SystemExit, match=str(code)) if code else nullcontext():
        gpu_cases.measure("logistic", "cpu")
    found = gpu.figures(capsys.readouterr().out)
    assert found["failed"][fails] == "RuntimeError: no kernel"
    assert set(found["clients_per_s"]) == {*gpu.WAYS} - {fails, "graphs"}


def test_a_rate_leaves_the_warm_up_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(gpu_cases.time, "perf_counter", lambda: now[0])

    def rate(*seconds: float, least_s: float = 5.0) -> float:
        left = list(seconds)

        def train() -> None:
            now[0] += left.pop(0)

        return gpu_cases.per_second(train, 6, "cpu", least_s)

    assert rate(9, 2, 2, 2) == 3.0
    assert rate(12) == 0.5
    assert rate(2, least_s=0.0) == 3.0


BLOCKED = """
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name.partition(".")[0] in {optional} else find(name, *rest)
try:
    import hypothesis
except ImportError:
    print("as if it were not there")
from simfl.cli import main
main(["run", "scenarios/async_buffer.yaml", "--set", "rounds=1", "--set", "clock=modelled",
      "--set", "learning.model=cnn", "--protocols", "lightsecagg_async", "--no-progress", "--out", {out!r}])
"""


@pytest.mark.ci
def test_a_run_needs_nothing_that_is_optional(tmp_path: Path) -> None:
    code = BLOCKED.format(optional=set(gpu.OPTIONAL), out=str(tmp_path / "run"))
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("as if it were not there")
    page = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    assert [name for name in (*gpu.NEEDED, *gpu.OPTIONAL) if f"`{name}`" not in page] == []
