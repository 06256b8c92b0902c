"""One command for a machine with a GPU: a benchmark, tests and studies, each in its time, and one table.

    make gpu                 (or: python benchmarks/gpu.py --device cuda)
    make gpu DEVICE=cpu      the same stages with small sizes, to try the command itself

A stage is a separate process: one that fails or takes too long is reported, and the others run. Results are
written to benchmarks/results/gpu.json after every stage. Nothing is installed or fetched; docs/gpu.md lists
the requirements.

The 8 minutes: four cases of 50 s each (up to six ways, 3 s each besides their warming up), 120 s for the
tests, 55 s for `async_buffer.yaml` and 35 s for either study, at most; 450 s are the limit of all stages
together, and the rest is for asking the machine and for ending stages.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"

CASE_NAMES = ("logistic", "pfl_cnn", "femnist_cnn", "resnet18_gn")

TOTAL_S = 450.0
"""Seconds of all stages; the command promises 8 minutes."""

NEEDED = ("torch", "numpy", "numba", "scipy", "simpy", "pydantic", "yaml", "cryptography", "rich", "typer",
          "threadpoolctl", "flint")  # fmt: skip
OPTIONAL = {
    "pytest": "the tests are not run",
    "hypothesis": "tests of random cases are not run",
    "jinja2": "no HTML report",
    "joblib": "no sweeps",
    "galois": "no audit by galois",
    "networkx": "no Harary graphs",
    "matplotlib": "no figures",
    "pyarrow": "no parquet",
    "playwright": "no test in a browser",
}
"""Modules that none of the stages must have, and what goes without each."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A command with its limit in seconds. case: its lines of JSON are figures of this case."""

    name: str
    limit_s: float
    command: tuple[str, ...]
    case: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a stage: its exit code (None: it was stopped at its limit), its seconds and its output."""

    code: int | None
    seconds: float
    output: str
    errors: str

    @property
    def told(self) -> str:
        """Return `ok`, or in a few words how the stage failed."""
        if self.code == 0:
            return "ok"
        if self.code is None:
            return f"stopped after {self.seconds:.0f} s"
        last = (self.errors.strip() or self.output.strip() or "no output").splitlines()[-1]
        return f"exit code {self.code}: {last[:160]}"


def stages(device: str) -> list[Stage]:
    """Return the stages of a device, the most wanted figures before the tests and the studies."""
    python, small = sys.executable, device == "cpu"
    some = ("-k", "logistic or softmax or cnn or lenet5")  # on a CPU, the large models take minutes
    laws = ("tests/learning", "--ignore=tests/learning/data", "--ignore=tests/learning/models")
    tests = ("tests/gpu", *(some if small else laws))
    run = (python, "run.py", "--no-progress", "--set", f"learning.device={device}")
    few = ("--set", "rounds=2") if small else ()
    patient = "deadlines={advertise: 60, shares: 60, upload: 3600, recovery: 60}"
    study = (*run, "scenarios/tutorial.yaml", "--set", patient, *few)
    case = (python, "-m", "benchmarks.gpu_cases", "--device", device)
    images = "learning.dataset={kind: synthetic, shape: [1, 28, 28], classes: 10, train: 1200, test: 200}"
    crops = "learning.dataset={kind: synthetic, shape: [3, 32, 32], classes: 10, train: 1200, test: 200}"
    return [
        *(Stage(f"benchmark of {name}", 50, (*case, name), name) for name in CASE_NAMES),
        Stage(
            "tests marked gpu", 120,
            (python, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "--continue-on-collection-errors",
             *tests),
            # A machine's own plugins of pytest are none of ours.
            environment={"SIMFL_TEST_DEVICE": device, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TIER": "ci"},
        ),
        # Not by its measured clock, under which a GPU is refused for devices of another slowdown than 1.
        Stage(
            "scenarios/async_buffer.yaml", 55,
            (*run, "scenarios/async_buffer.yaml", "--set", "clock=modelled", *few),
        ),
        Stage("study of LeNet-5", 35, (*study, "--set", images, "--set", "learning.model=lenet5")),
        Stage("study of a CNN", 35, (*study, "--set", crops, "--set", "learning.model=cnn")),
    ]  # fmt: skip


def carried_out(stage: Stage, limit_s: float) -> Ended:
    """Run a stage, and stop it with its children at its limit; its output until then is kept."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="simfl-gpu-") as folder:
        files = [Path(folder) / name for name in ("output", "errors")]
        words = [*stage.command, "--out", f"{folder}/run"] if "run.py" in stage.command else [*stage.command]
        # After the project, the modules that were carried here stay where the caller says.
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        environment = {
            **os.environ, **stage.environment, "PYTHONPATH": path, "SIMFL_CACHE": f"{folder}/cache",
        }  # fmt: skip
        with files[0].open("wb") as out, files[1].open("wb") as err:
            process = subprocess.Popen(
                words, cwd=ROOT, env=environment, stdout=out, stderr=err, start_new_session=True
            )
            try:
                code: int | None = process.wait(max(limit_s, 0.0))
            except subprocess.TimeoutExpired:
                code = None
            finally:
                # A new session: processes that a stage leaves behind would share the device with the next
                # stage.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        seconds = time.perf_counter() - start
        output, errors = (path.read_text(encoding="utf-8", errors="replace") for path in files)
    return Ended(code, seconds, output, errors)


def figures(output: str) -> dict[str, Any]:
    """Return what the lines of JSON in a case's output say together; a later line adds to an earlier one."""
    found: dict[str, Any] = {"clients_per_s": {}}
    for line in output.splitlines():
        with suppress(ValueError):
            one = json.loads(line)
            for key, value in one.items() if isinstance(one, dict) else ():
                found[key] = {**found.get(key, {}), **value} if isinstance(value, dict) else value
    return found


def missing(names: Sequence[str]) -> list[str]:
    return [name for name in names if find_spec(name) is None]


def machine(device: str) -> dict[str, Any]:
    """Return the device and the versions that figures depend on. SystemExit if `cuda` is not there.

    A process of its own finds them: one that has asked a GPU holds some of its memory."""
    words = (sys.executable, "-m", "benchmarks.gpu_cases", "--device", device, "machine")
    ended = carried_out(Stage("the machine", 60, words), 60)
    if ended.code != 0:
        raise SystemExit(f"{ended.told}; `make gpu DEVICE=cpu` tries the command itself")
    found = figures(ended.output)
    found.pop("clients_per_s")
    return found


def write(found: Mapping[str, Any], file: Path) -> None:
    """Write results in one step: a reader of the file gets an earlier state or this one, never a mixture."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, file)


WAYS = ("plain", "loop", "vectorised", "closed_form", "batched", "graphs")


def table(found: Mapping[str, Any]) -> str:
    """Return the results as text: stages, then cases with their goals, then why a way has no figure."""
    lines = [f"{'stage':<34}{'seconds':>8}  result"]
    lines += [f"{one['name']:<34}{one['seconds']:>8.1f}  {one['told']}" for one in found["stages"]]
    heads = "".join(f"{way.replace('_', ' '):>13}" for way in WAYS)
    lines += ["", f"{'clients/s':<13}{'goal':>7}{heads}  {'fastest':<13}{'x plain':>8}{'peak GB':>9}"
                  f"{'predicted':>10}{'chunk':>7}"]  # fmt: skip
    for name, case in found["cases"].items():
        rates, failed = case.get("clients_per_s", {}), case.get("failed", {})
        cells = [f"{rates[way]:.1f}" if way in rates else "failed" if way in failed else "-" for way in WAYS]
        ours = {way: rate for way, rate in rates.items() if way != "plain"}
        best = max(ours, key=lambda way: ours[way], default="-")
        ratio = f"{ours[best] / rates['plain']:.2f}" if ours and rates.get("plain") else "-"
        sizes = [f"{case[key] / 1e9:.2f}" if case.get(key) else "-" for key in
                 ("peak_bytes", "predicted_bytes")]  # fmt: skip
        lines.append(
            f"{name:<13}{case.get('goal', '-'):>7}{''.join(f'{cell:>13}' for cell in cells)}"
            f"  {best:<13}{ratio:>8}{sizes[0]:>9}{sizes[1]:>10}{case.get('chunk', '-'):>7}"
        )
    lines += [
        f"{name}, {way}: {why}"
        for name, case in found["cases"].items()
        for way, why in case.get("failed", {}).items()
    ]
    lines += ["", "batched and graphs are candidates: the product has neither."]
    if found["device"] == "cpu":
        lines += ["On a CPU with small sizes: this tries the command, and the goals are a GPU's."]
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    """Carry out all stages; return 0 if each of them went well."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", type=Path, default=RESULTS / "gpu.json")
    asked = parser.parse_args(words)
    if absent := missing(NEEDED):
        raise SystemExit(f"not installed: {', '.join(absent)}; docs/gpu.md lists what must be there")
    begun = time.perf_counter()
    without = {name: OPTIONAL[name] for name in missing(tuple(OPTIONAL))}
    for name, lost in without.items():
        print(f"without {name}: {lost}", flush=True)
    results: list[dict[str, Any]] = []
    cases: dict[str, Any] = {}
    found = {**machine(asked.device), "datetime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
             "without": without, "stages": results, "cases": cases}  # fmt: skip
    for stage in stages(asked.device):
        if "pytest" in stage.command and "pytest" in without:
            results.append({"name": stage.name, "seconds": 0.0, "told": "skipped: no pytest"})
            continue
        limit_s = min(stage.limit_s, TOTAL_S - (time.perf_counter() - begun))
        ended = carried_out(stage, limit_s)
        if stage.case:
            cases[stage.case] = figures(ended.output)
        one = {"name": stage.name, "seconds": round(ended.seconds, 1), "told": ended.told}
        if "pytest" in stage.command:
            one["tests"] = ended.output.strip().splitlines()[-3:]
        if ended.code != 0:
            one["end"] = (ended.output + ended.errors).strip().splitlines()[-20:]
        results.append(one)
        print(f"{stage.name}: {ended.told} ({ended.seconds:.1f} s)", flush=True)
        write(found, asked.out)
    found["seconds"] = round(time.perf_counter() - begun, 1)
    write(found, asked.out)
    print(f"\n{table(found)}\n\n{found['seconds']:.0f} s; written to {asked.out}")
    return int(any(one["told"] != "ok" and not one["told"].startswith("skipped") for one in results))


if __name__ == "__main__":
    sys.exit(main())
