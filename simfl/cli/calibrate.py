"""A device profile of this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simfl.cli.common import app

if TYPE_CHECKING:
    from simfl.studies.calibrate.training import Training


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
    from simfl.profiles import text
    from simfl.studies.calibrate import passes as measuring

    if out is not None and not out.parent.is_dir():
        raise BadInput(f"{out}: there is no folder {out.parent}")
    more = () if scenario is None else (_training(scenario),)

    def tell(done: int) -> None:
        if sys.stderr.isatty():
            print(f"\rpass {done} of {passes}", end="\n" if done == passes else "", file=sys.stderr)

    profile = measuring.calibrate(passes, more, tell)
    if out is None:
        print(text(profile), end="")
        return
    measuring.write(out, profile)
    for kind, (low, high) in profile["intervals"].items():
        print(f"{kind:<18}{profile['seconds'][kind]:<10.3g} s   95 %: {low:.3g} to {high:.3g}")
    print(f"{out}: name it as a scenario's profile, with clock: modelled")


def _training(scenario: Path) -> Training:
    from simfl.experiment.build import build
    from simfl.scenario.load import load
    from simfl.studies.calibrate.training import Training

    trainer = build(load(scenario, {"clock": "measured"})).trainer
    split = trainer.split
    return Training(trainer.model, split.shape, split.classes, trainer.sgd.batch_size)
