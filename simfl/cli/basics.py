"""Run a scenario, or check it without running."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simfl.cli.common import (
    INTERRUPTED,
    ClockOption,
    Protocols,
    ScenarioFile,
    Seed,
    Set,
    Workers,
    app,
    load_scenario,
    say,
)
from simfl.cli.doing import doing
from simfl.errors import counted

if TYPE_CHECKING:
    from simfl.result import Result


class Format(StrEnum):
    """What `run` prints."""

    table = "table"
    json = "json"


@app.command("run")
def run_command(
    scenario: ScenarioFile,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the run's files go.")] = None,
    set_: Set = None,
    seed: Seed = None,
    clock: ClockOption = None,
    protocols: Protocols = None,
    workers: Workers = None,
    format_: Annotated[Format, typer.Option("--format", help="What is printed.")] = Format.table,
    no_progress: Annotated[bool, typer.Option("--no-progress", help="No live progress.")] = False,
    parquet: Annotated[bool, typer.Option("--parquet", help="Write breakdown.parquet too.")] = False,
) -> None:
    """Simulate a scenario; print its breakdown; leave trace, summary and tables in a folder."""
    loaded = load_scenario(scenario, set_, seed, clock, protocols, workers)
    folder = out or _fresh(Path("runs") / loaded.name)
    if folder.exists() and not folder.is_dir():
        raise typer.BadParameter(f"{folder} is a file, not a folder", param_hint="--out")

    from rich.console import Console

    from simfl.reports import parquet as parquet_files
    from simfl.reports import terminal
    from simfl.simulation import run

    if parquet:
        parquet_files.need()
    errors = Console(stderr=True)
    live = format_ is Format.table and not no_progress and errors.is_terminal
    if live:
        unit = "aggregations" if loaded.buffer else "rounds"
        with terminal.progress(errors, loaded.rounds, unit) as watch:
            result = _or_partial(lambda: run(loaded, out=folder, watch=watch), folder)
    else:
        result = _or_partial(lambda: run(loaded, out=folder), folder)
    if parquet:
        _write_parquet(result, folder)
    if format_ is Format.json:
        print(json.dumps(result.summary, indent=2))
    else:
        terminal.show(Console(), result.summary, loaded.profile)
        print(f"Written to {folder}")


@app.command()
def check(
    scenario: ScenarioFile,
    set_: Set = None,
    seed: Seed = None,
    clock: ClockOption = None,
    protocols: Protocols = None,
    workers: Workers = None,
) -> None:
    """Check a scenario without running it, and print what it resolves to."""
    loaded = load_scenario(scenario, set_, seed, clock, protocols, workers)

    from simfl.reports.histogram import label_histogram
    from simfl.scenario.build import build, clocks
    from simfl.scenario.load import resolved_yaml
    from simfl.scenario.sparsity import promises

    with doing() as tell:
        study = build(loaded, tell)
        tell("reading the recording")
        clocks(study)
        tell("finding out how often each protocol fails")
        promised = list(promises(loaded))
        tell(f"counting the labels of {counted(loaded.population.users, 'user')}")
        partitions = study.partitions
    many = len(partitions) > 1
    print(resolved_yaml(loaded), end="")
    rounds = counted(loaded.rounds, "aggregation" if loaded.buffer else "round")
    say(
        f"# {scenario.name}: good; {counted(loaded.population.users, 'user')}, {rounds} of "
        f"{', '.join(loaded.protocols)}; the model has d = {counted(study.trainer.d, 'parameter')}",
        further="#   ",
    )
    memory = (f"{name}: {entry}" for name, entry in study.memory.items())
    for line in (*promised, *study.training_times(), *memory):
        say(f"# {line}", further="#   ")
    for name, counts in partitions.items():
        dealt = loaded.of(name).learning.partition
        print(f"# {loaded.learning.dataset.kind}, {dealt.kind}" + (f" ({name}):" if many else ":"))
        for line in label_histogram(counts, width=78):
            print(f"# {line}")


def _write_parquet(result: Result, folder: Path) -> None:
    """`breakdown.csv` once more."""
    from simfl.reports.parquet import write_parquet
    from simfl.result import breakdown

    names, *rows = breakdown(result.rounds)
    columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    columns["seconds"] = [float(seconds) for seconds in columns["seconds"]]
    write_parquet(folder / "breakdown.parquet", columns)


def _fresh(folder: Path) -> Path:
    """The folder itself, or with the first number that is free: no run overwrites another unasked."""
    number, fresh = 1, folder
    while fresh.exists():
        number += 1
        fresh = folder.with_name(f"{folder.name}-{number}")
    return fresh


def _or_partial(simulation: Callable[[], Result], folder: Path) -> Result:
    try:
        return simulation()
    except KeyboardInterrupt:
        what = f"; what was finished is in {folder}" if folder.exists() else ""
        print(f"Interrupted{what}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
