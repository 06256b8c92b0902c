"""A device profile of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simfl.cli.common import app


@app.command("calibrate")
def calibrate_command(
    out: Annotated[
        Path | None,
        typer.Argument(help="Where the profile goes; printed unless given.", metavar="[OUT.yaml]"),
    ] = None,
    scenario: Annotated[
        Path | None,
        typer.Option("--for", metavar="SCENARIO", help="Find the law of its model's training too."),
    ] = None,
    passes: Annotated[
        int, typer.Option(min=6, help="How often everything is measured: intervals need 6.")
    ] = 21,
) -> None:
    """Measure the seconds of each kind of work on this machine, with 95 % intervals: a device profile."""
    from simfl.errors import BadInput
    from simfl.experiment.build import build
    from simfl.folder.result import atomic
    from simfl.profiles import text
    from simfl.reports.terminal import console, counting
    from simfl.scenario.load import load
    from simfl.studies.calibrate.passes import calibrate
    from simfl.studies.calibrate.training import Training

    if out is not None and not out.parent.is_dir():
        raise BadInput(f"{out}: there is no folder {out.parent}")
    more = []
    if scenario is not None:
        trainer = build(load(scenario, {"clock": "measured"})).trainer
        shape, classes = trainer.split.shape, trainer.split.classes
        more.append(Training(trainer.model, shape, classes, trainer.sgd.batch_size))
    with counting(console(stderr=True), "pass", passes) as done:
        profile = calibrate(passes, more, done)
    if out is None:
        print(text(profile), end="")
        return
    with atomic(out) as file:
        file.write(text(profile))
    for kind, (low, high) in profile["intervals"].items():
        print(f"{kind:<18}{profile['seconds'][kind]:<10.3g} s   95 %: {low:.3g} to {high:.3g}")
    print(f"{out}: name it as a scenario's profile, with clock: modelled")
