"""What a run gave away."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simfl.cli.common import app, tell


@app.command()
def privacy(
    folder: Annotated[Path, typer.Argument(help="A run with record_updates: true.", metavar="RUN")],
    first: Annotated[int | None, typer.Option("--from", metavar="ROUND", help="First round.")] = None,
    last: Annotated[int | None, typer.Option("--to", metavar="ROUND", help="Last round.")] = None,
) -> None:
    """Attack a run: reconstruct users' updates from its aggregates by least squares."""
    from simfl.errors import BadInput
    from simfl.privacy.attack import attack
    from simfl.reports.histograms import attack_lines

    files = sorted(folder.glob("updates-*.npz"))
    if not files:
        raise BadInput(f"{folder}: no updates-*.npz: run its scenario with record_updates: true")
    for file in files:
        tell("\n".join(attack_lines(file.stem.removeprefix("updates-"), attack(file, first, last))))
