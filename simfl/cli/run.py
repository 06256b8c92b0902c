"""Run a scenario, or check it without running."""

from __future__ import annotations

import json
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Annotated, Literal

import typer

from simfl.cli.common import (
    ClockOption,
    Protocols,
    ScenarioFile,
    Seed,
    Set,
    Workers,
    app,
    keeping,
    load_scenario,
    say,
    stages,
    tell,
)
from simfl.errors import BadInput, counted, need
from simfl.results.trace import unit


@app.command("run")
def run_command(
    scenario: Annotated[
        Path | None, typer.Argument(help="A scenario, YAML.", metavar="SCENARIO", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the run's files go.")] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Go on with the unfinished run in this folder.")
    ] = None,
    save_every_s: Annotated[
        float,
        typer.Option("--save-every", metavar="S", min=0, help="How often finished rounds are saved."),
    ] = 2.0,
    set_: Set = None,
    seed: Seed = None,
    clock: ClockOption = None,
    protocols: Protocols = None,
    workers: Workers = None,
    format_: Annotated[Literal["table", "json"], typer.Option("--format", help="What is printed.")] = "table",
    no_progress: Annotated[bool, typer.Option("--no-progress", help="No live progress.")] = False,
    parquet: Annotated[bool, typer.Option("--parquet", help="Write breakdown.parquet too.")] = False,
) -> None:
    """Simulate a scenario; print its breakdown; leave trace, summary and tables in a folder."""
    from simfl.folder.disk import reserve
    from simfl.folder.result import breakdown
    from simfl.folder.unfinished import unfinished_scenario

    if resume is not None and out is not None:
        raise typer.BadParameter("goes on in the run's own folder: leave --out away", param_hint="--resume")
    if scenario is not None:
        loaded = load_scenario(scenario, set_, seed, clock, protocols, workers)
    elif resume is None:
        raise typer.BadParameter("is missing", param_hint="SCENARIO")
    elif any(given is not None for given in (set_, seed, clock, protocols, workers)):
        message = "goes on with the run as it is: leave other settings away"
        raise typer.BadParameter(message, param_hint="--resume")
    else:
        loaded = unfinished_scenario(resume)

    from simfl.reports import terminal
    from simfl.simulation import run

    if parquet:
        need("--parquet", "pyarrow.parquet")
    errors = terminal.console(stderr=True)
    folder = resume or out or reserve(Path("runs") / loaded.name)
    live = format_ == "table" and not no_progress and errors.is_terminal
    bars = (
        terminal.progress(errors, loaded.rounds, f"{unit(loaded.asynchronous)}s") if live else nullcontext()
    )
    try:
        with keeping(lambda: _left(folder)), bars as watch:
            result = run(
                loaded, out=folder, resume=resume is not None, save_every_s=save_every_s, watch=watch
            )
    except BadInput:
        with suppress(OSError):  # where it is empty: the run's own is removed already
            Path("runs").rmdir()
        raise
    if parquet:
        names, *rows = breakdown(result.rounds)
        columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
        columns["seconds"] = list(map(float, columns["seconds"]))
        from simfl.reports.parquet import write_parquet

        write_parquet(folder / "breakdown.parquet", columns)
    if format_ == "json":
        print(json.dumps(result.summary, indent=2))
    else:
        terminal.show(terminal.console(), result.summarised(), loaded.profile)
        tell(f"Written to {folder}")


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

    from simfl.experiment.build import build, make_clocks
    from simfl.python_files import blamed
    from simfl.reports.histograms import label_histogram
    from simfl.scenario.load import resolved_yaml

    with stages() as stage:
        with blamed(BadInput):
            study = build(loaded, stage)
        stage("reading the recording")
        make_clocks(study)
        stage("finding out how often each protocol fails")
        promised = [
            f"{name}: {note}"
            for name, entry in loaded.protocols.items()
            for note in entry.notes(loaded.params(name))
        ]
        stage(f"counting the labels of {counted(loaded.population.users, 'user')}")
        partitions = study.partitions
    many = len(partitions) > 1
    print(resolved_yaml(loaded), end="")
    rounds = counted(loaded.rounds, unit(loaded.asynchronous))
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
        tell(f"# {loaded.learning.dataset.kind}, {dealt.kind}" + (f" ({name}):" if many else ":"))
        for line in label_histogram(counts, width=78):
            print(f"# {line}")


def _left(folder: Path) -> str:
    """Return the end of a message, with the place of the finished rounds."""
    if (folder / "unfinished").is_dir():
        return f"; what was finished is in {folder}, and simfl run --resume {folder} goes on"
    return f"; what was finished is in {folder}" if (folder / "summary.json").exists() else ""
