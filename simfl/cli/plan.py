"""Answer which protocol a fleet should run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from simfl.cli.common import app, say, stages
from simfl.cli.folders import check_place
from simfl.cli.inputs import Set, names_and_files, overrides, tell_whose_code


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
    """Find the protocol and the settings that keep a fleet's promises soonest, in shadow.

    Example: simfl plan fleets/phones
    """
    from simfl.reports.terminal import console, show
    from simfl.runs.folder.disk import write_text
    from simfl.studies.plan import fleet_plan
    from simfl.studies.plan.report import plan_report

    check_place(out)
    with stages() as stage:

        def watch(text: str) -> None:
            tell_whose_code()
            stage(text)

        planned = fleet_plan.plan(fleet, overrides(set_), watch)
    write_text(out, planned.scenario_text())
    if json_:
        print(json.dumps(planned.dump(), indent=2))
        return
    show(console(), plan_report(planned.answer, planned.changes))
    say(f"Written to {out}: run it with simfl run {out}")
