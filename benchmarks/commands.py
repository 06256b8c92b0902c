"""CPU seconds of whole commands, against an earlier commit in turns; `make bench` has the same ratios.

    python benchmarks/commands.py [COMMIT] [TURNS]

The commit is checked out beside, each run has a fresh cache folder, as on a user's first day. The
process with its threads is timed (user and system), and the best of the turns counts.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BASE = "81c6d77"
# Of the CPU time at BASE, to reach.
REACH = {
    "async_buffer, modelled": 0.5,
    "async_buffer, measured": 0.4,
    "lightsecagg, 10,000 users, shadow": 1.0,
}
_SHADOW = ("--set", "payload=shadow", "--set", "dropout=none", "--set", "quantization.levels=4096")
_MANY = (
    *_SHADOW, "--set", "population.users=10000", "--set", "privacy={T: 1000, D: 1000}",
    "--set", "learning.dataset={kind: synthetic, train: 10000, test: 10}",
)  # fmt: skip
COMMANDS = {
    "async_buffer, modelled": ["scenarios/async_buffer.yaml", "--clock", "modelled"],
    "async_buffer, measured": ["scenarios/async_buffer.yaml", "--clock", "measured"],
    "fedavg, 10,000 users, shadow": ["scenarios/tutorial.yaml", "--protocols", "fedavg", *_MANY],
    "secagg, 500 users, shadow": [
        "scenarios/tutorial.yaml", "--protocols", "secagg", *_SHADOW, "--set", "population.users=500",
        "--set", "privacy={T: 200, D: 100}", "--set", "rounds=1",
    ],
    "lightsecagg, 10,000 users, shadow": [
        "scenarios/tutorial.yaml", "--protocols", "lightsecagg", *_MANY, "--set", "rounds=1",
        "--set", "memory_limit_gb=8",
        "--set", "deadlines={advertise: 3000, shares: 3000, upload: 3000, recovery: 3000}",
    ],
}  # fmt: skip


def cpu_s(checkout: Path, arguments: list[str]) -> float:
    """CPU seconds of one run of a checkout's run.py."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(checkout), "SIMFL_CACHE": f"{folder}/cache"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # users' runs find their modules compiled
        words = [sys.executable, "run.py", *arguments, "--no-progress", "--out", f"{folder}/run"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(words, cwd=checkout, env=environment, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def against(commit: str = BASE, turns: int = 2) -> Iterator[tuple[str, float, float]]:
    """Yield each command with its CPU seconds before and now."""
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "old"
        subprocess.run(["git", "worktree", "add", "--detach", str(old), commit], cwd=ROOT, check=True)
        try:
            for name, arguments in COMMANDS.items():
                taken = [(cpu_s(old, arguments), cpu_s(ROOT, arguments)) for _ in range(turns)]
                before, now = (min(pair[k] for pair in taken) for k in (0, 1))
                yield name, before, now
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(old)], cwd=ROOT, check=True)


def main() -> None:
    commit = sys.argv[1] if len(sys.argv) > 1 else BASE
    for name, before, now in against(commit, int(sys.argv[2]) if len(sys.argv) > 2 else 2):
        print(f"{name:36}{before:7.1f} s before {now:7.1f} s now  x {now / before:.2f}", flush=True)


if __name__ == "__main__":
    main()
