"""Seven questions about a fleet, and the file of their answers, which has a comment on each line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from string import Template

import typer

from simfl.cli.common import print_lines
from simfl.config.quantities import meant
from simfl.config.yaml_tree import parse, plain
from simfl.errors import ScenarioError

QUESTIONS = {
    "users": ("How many phones have the app?", "2,000,000"),
    "links": (
        "On which links, with their shares? lte_2021, 5g_2021, wifi4_2021, wifi5_2021, wifi6_2021",
        "wifi5_2021 60 %, lte_2021 40 %",
    ),
    "checked_in": ("How many are available at a time of the night (charging, idle, online)?", "10 %"),
    "model": ("Which model? A name of `simfl list models`, or its MB and a training's seconds", "5 MB 30 s"),
    "lost": ("How many of those chosen are lost in a round?", "10 %"),
    "updates": ("How many updates does an aggregate need?", "1,000"),
    "collude": ("How many phones may collude with the server? 0: it alone; none: hide nothing", "5 %"),
}
"""Key of the template -> the question, and the answer that is usual or stands for an unknown one."""


def ask(file: Path) -> None:
    """Ask the questions on the terminal, each until its answer is right, and write the fleet's file."""
    from simfl.runs.folder.disk import write_text
    from simfl.scenario.fleet import load_fleet

    if file.exists():
        raise typer.BadParameter(f"{file} exists already: name another file", param_hint="FLEET")
    answers = {key: usual for key, (_, usual) in QUESTIONS.items()}
    for number, (key, (question, usual)) in enumerate(QUESTIONS.items(), 1):
        while True:
            answers[key] = typer.prompt(f"{number} of {len(QUESTIONS)}. {question}", default=usual)
            try:
                load_fleet(plain(parse(written(answers), "answers")))
            except ScenarioError as wrong:
                problem = wrong.problems[0]
                # A usual answer that does not fit this one is not yet the user's: its question comes later.
                if problem.path not in list(QUESTIONS)[number:]:
                    print_lines(f"{problem.path}: {problem.message}", error=True)
                    continue
            break
    write_text(file, written(answers))
    print_lines(f"Written to {file}: change it there, and plan again by simfl plan {file}")


def written(answers: Mapping[str, str]) -> str:
    """Return the fleet's file of answers.

    >>> written({key: usual for key, (_, usual) in QUESTIONS.items()}).splitlines()[2].strip()
    'users: 2000000  # phones with the app, by your store\\'s count'
    """
    values = {key: meant(answer) or answer for key, answer in answers.items()}
    links = re.findall(r"(\w+)[\s:]*([\d.]+\s*%)?", answers["links"])
    values["classes"] = "\n".join(
        f"    {name}: {{share: {share or '100 %'}, network: {{preset: {name}}}}}  # see docs/realism.md"
        for name, share in links
    )
    if size := re.fullmatch(r"([\d.]+)\s*MB\W*([\d.]+)\s*s?", answers["model"].strip()):
        values["model"] = f"{{mb: {size[1]}, train_s: {size[2]}}}"
    template = resources.files("simfl.cli") / "fleet.yaml.template"
    return Template(template.read_text(encoding="utf-8")).substitute(values)
