"""Studies of many runs, and of what a run gave away."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from simfl.cli.common import INTERRUPTED, Protocols, ScenarioFile, Set, app, load_scenario


@app.command()
def repeat(
    scenario: ScenarioFile,
    seeds: Annotated[int, typer.Option(min=1, help="So many seeds: the scenario's and the next.")] = 5,
    jobs: Annotated[int, typer.Option(min=1, help="Processes that run seeds side by side.")] = 1,
    set_: Set = None,
    protocols: Protocols = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="The runs' summaries, JSON.")] = None,
) -> None:
    """Run a scenario under several seeds; print accuracy, T, F and C with their spread."""
    loaded = load_scenario(scenario, set_, None, None, protocols, None)

    from rich.console import Console

    from simfl.reports import terminal
    from simfl.result import atomic
    from simfl.studies.repeat import over_seeds

    numbers = range(loaded.seed, loaded.seed + seeds)
    try:
        with terminal.counting(Console(stderr=True), loaded.name, seeds) as done:
            summaries = over_seeds(loaded, numbers, jobs, done)
    except KeyboardInterrupt:
        print("Interrupted", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    entries = {name: [run["protocols"][name] for run in summaries.values()] for name in loaded.protocols}
    console = Console()
    console.print(terminal.participation(entries))
    if out is not None:
        with atomic(out) as file:
            json.dump({str(seed): summary for seed, summary in summaries.items()}, file)
        print(f"Written to {out}")


@app.command()
def privacy(
    folder: Annotated[Path, typer.Argument(help="A run with record_updates: true.", metavar="RUN")],
    first: Annotated[int | None, typer.Option("--from", metavar="ROUND", help="First round.")] = None,
    last: Annotated[int | None, typer.Option("--to", metavar="ROUND", help="Last round.")] = None,
) -> None:
    """Attack a run: reconstruct users' updates from its aggregates by least squares."""
    from simfl.errors import BadInput
    from simfl.privacy.recorded import attack
    from simfl.reports.attack import lines

    files = sorted(folder.glob("updates-*.npz"))
    if not files:
        raise BadInput(f"{folder}: no updates-*.npz: run its scenario with record_updates: true")
    for file in files:
        print("\n".join(lines(file.stem.removeprefix("updates-"), attack(file, first, last))))
