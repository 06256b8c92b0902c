"""Answer which protocol a fleet should run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from simfl.cli.common import Set, app, names_and_files, overrides, say, stages, tell_whose_code


@app.command("plan")
def plan_command(
    fleet: Annotated[
        Path,
        Argument(
            help="A fleet, YAML, or a name such as fleets/phones: see docs/plan.md.",
            metavar="FLEET",
            autocompletion=names_and_files,
        ),
    ],
    out: Annotated[Path, Option(metavar="FILE", help="Where the scenario goes that runs the answer.")] = Path(
        "planned.yaml"
    ),
    set_: Set = None,
    json_: Annotated[bool, Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Find the protocol and the settings that keep a fleet's promises soonest, in shadow."""
    from simfl.errors import BadInput
    from simfl.folder.result import atomic
    from simfl.reports.plan_terminal import show_plan
    from simfl.reports.terminal import console
    from simfl.scenario.fleet import load_fleet
    from simfl.studies.plan.answer import plain, scenario_text
    from simfl.studies.plan.search import plan
    from simfl.studies.plan.sensitivity import flips

    if not out.parent.is_dir():
        raise BadInput(f"{out}: there is no folder {out.parent}")
    loaded = load_fleet(fleet, overrides(set_))
    tell_whose_code()
    with stages() as stage:
        answer = plan(loaded, stage)
        changes = list(flips(answer, stage))
    with atomic(out) as file:
        file.write(scenario_text(answer))
    if json_:
        print(json.dumps(plain(answer, changes), indent=2))
        return
    show_plan(console(), answer, changes)
    say(f"Written to {out}: run it with simfl run {out}")
