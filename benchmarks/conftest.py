"""What `make bench` measures and prints: each kernel and each round beside a yardstick of the same run.

A benchmark belongs to a group. One of the group is its yardstick; the table at the end gives the median of
every other one as a multiple of it, and the ratio that it is to reach. It is kept as JSON with the machine's
description. Times are CPU seconds: other work on the machine matters little to their ratios.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from threadpoolctl import threadpool_limits

RESULTS = Path(__file__).parent / "results"
ROWS: list[dict[str, Any]] = []
EXTENSION = re.compile(r"\b(?:v?aes|(?:avx|amx|sve|fma|asimd|gfni|v?pclmul|pmull)\w*)\b")

Bench = Callable[..., Any]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Every library works on one thread."""
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield


@pytest.fixture
def beside(benchmark: Any) -> Bench:
    """Time a piece of work as one of a group.

    beside(group, name, work, reach=None, per=1): without `reach` it is the group's yardstick, with it one of
    those that are to take at most `reach` times as long; the work does `per` things of which one counts.
    """

    def measure(
        group: str, name: str, work: Callable[[], object], reach: float | None = None, per: int = 1
    ) -> None:
        benchmark.group, benchmark.name = group, name
        benchmark._timer = time.process_time
        once = _cpu_seconds(work)
        benchmark.pedantic(work, rounds=max(3, min(25, int(1.5 / max(once, 1e-4)))), warmup_rounds=1)
        seconds = benchmark.stats.stats.median / per
        ROWS.append({"group": group, "name": name, "seconds": seconds, "reach": reach})

    return measure


@pytest.fixture
def found(benchmark: Any) -> Bench:
    """Report what was measured elsewhere: found(group, name, (value, unit, reach), ...)."""

    def report(group: str, name: str, *figures: tuple[float, str, float | None]) -> None:
        benchmark.group, benchmark.name = group, name
        benchmark.pedantic(lambda: None, rounds=1)
        for value, unit, reach in figures:
            ROWS.append({"group": group, "name": name, "value": value, "unit": unit, "reach": reach})

    return report


def _cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The table of ratios, and the processor that they are of."""
    terminalreporter.section("ratios within this run")
    terminalreporter.write_line(f"vector extensions: {' '.join(vector_extensions()) or 'not known'}")
    for row in _with_ratios():
        terminalreporter.write_line(_line(row))


def _with_ratios() -> list[dict[str, Any]]:
    yardsticks = {row["group"]: row["seconds"] for row in ROWS if row["reach"] is None and "seconds" in row}
    return [
        row | {"ratio": row["seconds"] / yardsticks[row["group"]]}
        if "seconds" in row and row["group"] in yardsticks
        else row
        for row in ROWS
    ]


def _line(row: dict[str, Any]) -> str:
    if "unit" in row:
        figure = f"{row['value']:10.3g} {row['unit']}"
    else:
        figure = f"{row['seconds'] * 1e3:10.3f} ms{row.get('ratio', float('nan')):8.3f} x"
    reach = "" if row["reach"] is None else f"   reach {row['reach']:g}"
    return f"{row['group']:<34}{row['name']:<30}{figure}{reach}"


def pytest_benchmark_update_json(config: Any, benchmarks: Any, output_json: dict[str, Any]) -> None:
    """Keep the table with the machine's description, in a file of its own."""
    kept = {"machine": _machine(output_json), "datetime": output_json["datetime"], "ratios": _with_ratios()}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "ratios.json").write_text(json.dumps(kept, indent=1) + "\n")


def _machine(output: dict[str, Any]) -> dict[str, Any]:
    """What of the machine matters; not its name."""
    info = output["machine_info"]
    cpu = {key: info["cpu"].get(key) for key in ("brand_raw", "arch", "count")}
    cpu["vector_extensions"] = vector_extensions()
    return {"cpu": cpu, "python": info["python_version"], "system": info["system"]}


def vector_extensions(cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str]:
    """The processor's instructions on vectors and for AES, as Linux names them; empty where it does not say.

    Ratios of kernels differ between processors by these before all else."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return sorted(set(EXTENSION.findall(flags)))
