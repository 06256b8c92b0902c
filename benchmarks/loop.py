"""CPU time of `make test` over that of the main job under the modelled clock, both timed in one run.

python -m benchmarks.loop     prints both and their ratio; exit code 1 if it is above LIMIT

CPU time counts all processes of a command, so other work disturbs it less than a clock on the wall.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
LIMIT = 20
REPEATS = 3
"""Runs of the main job before the tests, and as many after them."""
LOG = sys.stderr
"""What the commands print goes there."""
TESTS = ("-m", "pytest", "-n", "auto", "--dist", "loadfile")
"""The command of `make test`."""


def cpu_s(*arguments: str) -> float:
    """Run Python with these arguments, whatever its exit code; return all its processes' CPU seconds."""
    before = getrusage(RUSAGE_CHILDREN)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, stdout=LOG)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main_job_s() -> float:
    with TemporaryDirectory() as folder:
        return cpu_s("run.py", "scenarios/async_buffer.yaml", "--clock", "modelled", "--out", f"{folder}/run")


def main() -> int:
    main_job_s()  # first runs compile
    cpu_s(*TESTS, "--collect-only", "-q")
    jobs = [main_job_s() for _ in range(REPEATS)]
    tests = cpu_s(*TESTS)
    jobs += [main_job_s() for _ in range(REPEATS)]
    ratio = tests / median(jobs)
    print(f"main job: {median(jobs):.1f} s of CPU time ({min(jobs):.1f} to {max(jobs):.1f})")
    print(f"make test: {tests:.0f} s, {ratio:.0f} times the main job (at most {LIMIT})")
    return int(ratio > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
