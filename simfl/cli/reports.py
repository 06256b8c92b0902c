"""Report on a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simfl.cli.common import app


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A run's folder.", metavar="DIR")],
    rounds: Annotated[
        str | None,
        typer.Option(metavar="A:B", help="Rounds of trace.perfetto.json and of the page's timeline."),
    ] = None,
) -> None:
    """Print a run's table again and what to speed up first; write report.html and trace.perfetto.json."""
    from rich.console import Console

    from simfl.reports import perfetto, terminal
    from simfl.reports.advice import advise
    from simfl.reports.folder import open_run
    from simfl.reports.page import page
    from simfl.result import atomic
    from simfl.scenario.load import load

    asked = _from_to(rounds)
    resolved = folder / "resolved.yaml"
    scenario = load(resolved)
    run = open_run(folder, scenario, resolved.read_text(encoding="utf-8"))
    chosen = perfetto.choose(run, asked)
    html = page(run, asked)

    terminal.show(Console(), run.summary, scenario.profile)
    for name, listed in run.rounds.items():
        print(f"{name}: {advise(run.traces[name], listed).sentence}")
    with atomic(folder / "trace.perfetto.json") as file:
        file.writelines(perfetto.lines(run, chosen))
    with atomic(folder / "report.html") as file:
        file.write(html)
    for line in perfetto.left_out(run, chosen):
        print(f"trace.perfetto.json holds of {line} (--rounds A:B for others)")
    print(f"Written to {folder}: report.html, trace.perfetto.json")


def _from_to(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, colon, last = text.partition(":")
    if not (colon and first.isdecimal() and last.isdecimal()):
        raise typer.BadParameter(f"{text!r} must be A:B, such as 0:9", param_hint="--rounds")
    return int(first), int(last)
