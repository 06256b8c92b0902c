"""Compare finished runs, or finished sweeps."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from simfl.cli.common import FAILED, app, tell, warn_inexact
from simfl.cli.folders import check_place, telling_removed
from simfl.cli.inputs import Format


@app.command()
def compare(
    folders: Annotated[
        list[Path], Argument(help="Folders of runs, or of sweeps; the first is the reference.", metavar="DIR")
    ],
    out: Annotated[Path | None, Option(metavar="FILE", help="Write a page to this file, too.")] = None,
    format_: Format = "table",
) -> None:
    """Print the settings, phases, critical paths and bytes in which runs differ, with verdicts.

    Exit code 1: an aggregate of one of them is not the plain sum; stderr names it.

    Example: simfl compare runs/tutorial-1 runs/tutorial-2
    """
    from simfl.studies import compared

    if out is not None:
        check_place(out)
    with ExitStack() as told:
        for folder in folders:
            told.enter_context(telling_removed(folder))
        comparison = compared.compare(*folders)
    summaries = [run for side in comparison.sides for run in side.summaries]
    if out is not None:
        from simfl.runs.folder.disk import write_text
        from simfl.studies.comparison.page import page

        write_text(out, page(comparison))
    if format_ == "json":
        print(json.dumps(comparison.dump(), indent=2, allow_nan=False))
    else:
        from simfl.reports import terminal
        from simfl.studies.comparison.report import comparison_report

        terminal.show(terminal.console(), comparison_report(comparison))
        if out is not None:
            tell(f"Written to {out}")
    if warn_inexact(summaries):
        raise typer.Exit(FAILED)
