"""One command for a machine with a GPU: a benchmark, tests and studies, each in its time, and one table.

    make gpu                       (or: python benchmarks/gpu.py --device cuda)
    make gpu DEVICE=cpu            the same stages with small sizes, to try the command itself
    make gpu ONLY="policy live"    these stages alone

A stage is a separate process: one that fails or takes too long is reported, and the others run. Results are
written to a file of benchmarks/results after every stage, and after Ctrl-C. Nothing is installed or fetched;
docs/gpu.md lists the requirements. The exit code is 1 if a stage failed, 130 after Ctrl-C.

The 8 minutes: a self-check of 20 s, four cases of 41 s each (up to six ways, 2.5 s each besides their warming
up), 120 s for the tests, 50 s for `async_buffer.yaml`, 30 s for either study, 25 s for a live run, 15 s each
for the choices of `auto` and for the profile, at most. The rest is for ending stages.
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

CHECK_S = 20.0
"""Seconds of the self-check."""
TOTAL_S = CHECK_S + 450.0
"""Seconds of the self-check and all stages; the command promises 8 minutes."""
ON_CPU = 2
"""Factor of all limits on a CPU, whose trial is for any machine."""
INTERRUPTED, STOPPED = 130, "interrupted"
"""Exit code after Ctrl-C, and the end of the stage then."""

NEEDED = ("torch", "numpy", "numba", "scipy", "simpy", "pydantic", "yaml", "cryptography", "rich", "typer",
          "threadpoolctl", "flint")  # fmt: skip
OPTIONAL = {
    "pytest": "the tests are not run",
    "msgspec": "no live users",
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
    """A command with its limit in seconds; its name selects it. case: its lines of JSON are figures of this
    case. facts: they are results of the whole command."""

    name: str
    limit_s: float
    command: tuple[str, ...]
    case: str = ""
    facts: bool = False
    needs: str = ""
    """A module without which the stage is skipped."""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a stage: its exit code (None: it was stopped at its limit), its seconds and its output."""

    code: int | None
    seconds: float
    output: str
    errors: str
    interrupted: bool = False
    """It was stopped by Ctrl-C."""

    @property
    def told(self) -> str:
        """Return `ok`, or in a few words how the stage failed."""
        if self.interrupted:
            return STOPPED
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
    measure = (python, "-m", "benchmarks.gpu_cases", "--device", device)
    four = ("population.users=4", "privacy={T: 1, D: 1, U: 3}", "rounds=1")
    live = (python, "-m", "simfl", "live", "scenarios/tutorial.yaml", "--links", "none")
    images = "learning.dataset={kind: synthetic, shape: [1, 28, 28], classes: 10, train: 1200, test: 200}"
    crops = "learning.dataset={kind: synthetic, shape: [3, 32, 32], classes: 10, train: 1200, test: 200}"
    return [
        *(Stage(name, 41, (*measure, name), name) for name in CASE_NAMES),
        Stage(
            "tests", 120,
            (python, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "--continue-on-collection-errors",
             "--at-least", "1", *tests),
            needs="pytest",
            # A machine's own plugins of pytest are none of ours.
            environment={"SIMFL_TEST_DEVICE": device, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TIER": "ci"},
        ),
        # Not by its measured clock, under which a GPU is refused for devices of another slowdown than 1.
        Stage(
            "buffer", 50,
            (*run, "scenarios/async_buffer.yaml", "--set", "clock=modelled", *few),
        ),
        Stage("lenet5", 30, (*study, "--set", images, "--set", "learning.model=lenet5")),
        Stage("cnn", 30, (*study, "--set", crops, "--set", "learning.model=cnn")),
        # Its users train on the CPU, in processes that are forked where a GPU could have been used.
        Stage("live", 25, (*live, *(word for key in four for word in ("--set", key))), needs="msgspec"),
        Stage("policy", 15, (*measure, "policy"), facts=True),
        Stage("profile", 15, (*measure, "profile"), facts=True),
    ]  # fmt: skip


def carried_out(stage: Stage, limit_s: float) -> Ended:
    """Run a stage, and stop it with its children at its limit; its output until then is kept."""
    start, interrupted = time.perf_counter(), False
    with tempfile.TemporaryDirectory(prefix="simfl-gpu-") as folder:
        files = [Path(folder) / name for name in ("output", "errors")]
        has_folder = {"run.py", "simfl"} & {*stage.command}
        words = [*stage.command, *(("--out", f"{folder}/run") if has_folder else ())]
        # After the project, the modules that were carried here stay where the caller says.
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        environment = {
            **os.environ, **stage.environment, "PYTHONPATH": path, "SIMFL_CACHE": f"{folder}/cache",
            # A process trains on one GPU: the first that the caller has selected.
            "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0],
        }  # fmt: skip
        with files[0].open("wb") as out, files[1].open("wb") as err:
            process = subprocess.Popen(
                words, cwd=ROOT, env=environment, stdout=out, stderr=err, start_new_session=True
            )
            try:
                code: int | None = process.wait(max(limit_s, 0.0))
            except (subprocess.TimeoutExpired, KeyboardInterrupt) as end:
                # Its session is another one, so Ctrl-C has not reached it; what it has written is kept.
                code, interrupted = None, isinstance(end, KeyboardInterrupt)
            finally:
                # A new session: processes that a stage leaves behind would share the device with the next
                # stage.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        seconds = time.perf_counter() - start
        output, errors = (path.read_text(encoding="utf-8", errors="replace") for path in files)
    return Ended(code, seconds, output, errors, interrupted)


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


def checked(device: str) -> dict[str, Any]:
    """Return the device, the versions that figures depend on, and what a look at it found wrong.

    Args:
        device: "cpu" or "cuda".

    Raises:
        SystemExit: Something without which no stage can work is missing.
    """
    if absent := missing(NEEDED):
        raise SystemExit(f"not installed: {', '.join(absent)}; docs/gpu.md lists what must be there")
    # A process of its own: one that has asked a GPU holds some of its memory.
    words = (sys.executable, "-m", "benchmarks.gpu_cases", "--device", device, "check")
    ended = carried_out(Stage("check", CHECK_S, words), CHECK_S)
    if ended.code:
        raise SystemExit(f"{ended.told}; `make gpu DEVICE=cpu` tries the command itself")
    found = {"device": device, "doubts": [], **figures(ended.output)}
    found.pop("clients_per_s")
    if ended.code is None:
        found["doubts"] += [f"the self-check was {ended.told}: torch or the driver starts slowly"]
    found["doubts"] += [f"without {name}: {OPTIONAL[name]}" for name in missing(tuple(OPTIONAL))]
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
    lines = [f"{'stage':<13}{'seconds':>8}  result"]
    lines += [f"{one['name']:<13}{one['seconds']:>8.1f}  {one['told']}" for one in found["stages"]]
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
    if policy := found.get("policy"):
        lines += ["", "choice of device auto", *(f"{name:<17}{choice}" for name, choice in policy.items())]
    if kernels := found.get("kernels"):
        lines += ["", f"longest kernels of {found['profiled']}", f"{'ms':>9}{'calls':>7}{'share':>7}  name"]
        lines += [
            f"{one['ms']:>9.2f}{one['calls']:>7}{one['share']:>7.0%}  {one['name'][:80]}" for one in kernels
        ]
        lines += [f"{found['launches']} calls, {found['kernels_ms']:.1f} ms of {found['wall_ms']:.1f} ms"]
    lines += ["", *found.get("doubts", ())]
    if found["device"] == "cpu":
        lines += ["On a CPU with small sizes: this tries the command, and the goals are a GPU's."]
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    """Carry out all stages.

    Args:
        words: Words of the command line; those of the process unless given.

    Returns:
        The exit code: 0 if each stage went well.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", type=Path, help="file of results; in benchmarks/results unless given")
    parser.add_argument("--only", nargs="+", metavar="STAGE", help="carry out these stages alone")
    asked = parser.parse_args(words)
    planned = stages(asked.device)
    names = [one.name for one in planned]
    if unknown := {*(asked.only or ())} - {*names}:
        parser.error(f"--only: no stage {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    # A trial on a CPU, or of some stages, must not replace the results of a GPU.
    kind = ("-cpu" if asked.device == "cpu" else "") + ("-some" if asked.only else "")
    file = asked.out or RESULTS / f"gpu{kind}.json"
    begun = time.perf_counter()
    found = {**checked(asked.device), "datetime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
             "stages": [], "cases": {}}  # fmt: skip
    print("\n".join(["self-check: done", *found["doubts"]]), flush=True)
    results: list[dict[str, Any]] = found["stages"]
    for stage in planned if not asked.only else [one for one in planned if one.name in asked.only]:
        carry_out(stage, found, begun)
        one = results[-1]
        print(f"{stage.name}: {one['told']} ({one['seconds']:.1f} s)", flush=True)
        found["seconds"] = round(time.perf_counter() - begun, 1)
        write(found, file)
        if one["told"] == STOPPED:
            break
    print(f"\n{table(found)}\n\n{found['seconds']:.0f} s; written to {file}")
    if results[-1]["told"] == STOPPED:
        return INTERRUPTED
    return int(any(one["told"] != "ok" and not one["told"].startswith("skipped") for one in results))


def carry_out(stage: Stage, found: dict[str, Any], begun: float) -> None:
    """Carry out a stage, and add its results to all results.

    Args:
        stage: The stage.
        found: All results.
        begun: `time.perf_counter` at the start of the command.
    """
    if stage.needs and missing([stage.needs]):
        told = f"skipped: no {stage.needs}"
        found["stages"].append({"name": stage.name, "seconds": 0.0, "told": told})
        return
    patience = ON_CPU if found["device"] == "cpu" else 1
    left_s = patience * TOTAL_S - (time.perf_counter() - begun)
    ended = carried_out(stage, min(patience * stage.limit_s, left_s))
    if stage.case:
        found["cases"][stage.case] = figures(ended.output)
    if stage.facts:
        found |= {key: value for key, value in figures(ended.output).items() if key != "clients_per_s"}
    one: dict[str, Any] = {"name": stage.name, "seconds": round(ended.seconds, 1), "told": ended.told}
    if "pytest" in stage.command:
        one["tests"] = ended.output.strip().splitlines()[-3:]
    if ended.code != 0:
        one["end"] = (ended.output + ended.errors).strip().splitlines()[-20:]
    found["stages"].append(one)


if __name__ == "__main__":
    sys.exit(main())
