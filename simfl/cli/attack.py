"""Attack a recorded run as its server could."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from simfl.cli.common import app, keeping, say, stages, tell
from simfl.cli.folders import run_folder
from simfl.cli.inputs import Set, load_scenario, names_and_files, settings, tell_whose_code

With = Annotated[
    list[str] | None,
    Option("--with", metavar="KEY=VALUE", help="A setting of the attack, such as steps=500."),
]


@app.command()
def attack(
    kind: Annotated[str, Argument(help="See `simfl list attacks`; or path.py:Name of your own.")],
    target: Annotated[
        Path,
        Argument(
            help="A run's folder with record_updates: true, or a scenario to run first.",
            metavar="RUN|SCENARIO",
            autocompletion=names_and_files,
        ),
    ],
    with_: With = None,
    set_: Set = None,
    out: Annotated[Path | None, Option(metavar="DIR", help="Where a scenario's run goes.")] = None,
    seed: Annotated[int, Option(min=0, help="Of the attack's own draws.")] = 1,
    as_json: Annotated[bool, Option("--json", help="Print attack-KIND.json and nothing else.")] = False,
) -> None:
    """Attack users' updates with what the server saw in a recorded run; write a table and a figure.

    Example: simfl attack inversion attacks/inversion
    """
    from simfl.config.blocks import as_name
    from simfl.privacy import attack_report as report
    from simfl.privacy import recorded
    from simfl.reports import terminal
    from simfl.runs.folder.disk import write_text

    made, to_run = recorded.made(kind, settings(with_, "--with")), not target.is_dir()
    if to_run:
        scenario = load_scenario(target, set_, {"record_updates": True})
    elif set_ or out:
        given = "--set" if set_ else "--out"
        raise typer.BadParameter(f"goes with a scenario, and {target} is a folder", param_hint=given)
    else:
        scenario = recorded.scenario_of(target)
    tell_whose_code()
    place = run_folder(out, scenario.name) if to_run else nullcontext(target)
    with place as folder, keeping(), stages() as stage:
        outcome = recorded.perform(made, folder, scenario, seed, to_run, stage)
    name = as_name(kind.rpartition(":")[2])
    text = json.dumps(report.record(made, outcome, scenario.name, seed), indent=2, allow_nan=False) + "\n"
    figure = report.svg(f"{name.replace('_', ' ')} on {scenario.name}", outcome)
    for suffix, content in (("json", text), ("svg", figure)):
        write_text(folder / f"attack-{name}.{suffix}", content)
    if as_json:
        print(text, end="")
        return
    terminal.console().print(report.table(outcome))
    for line in report.notes(made):
        say(line, further="  ")
    tell(f"Written to {folder}: attack-{name}.json, attack-{name}.svg")
