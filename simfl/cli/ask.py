"""Seven questions about a fleet, and the file of their answers, which has a comment on each line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from string import Template

import typer

from simfl.cli.common import INTERRUPTED, print_lines, print_paragraph, wrapped
from simfl.config.quantities import meant
from simfl.config.yaml_tree import parse, plain
from simfl.errors import ScenarioError

TEMPLATE = (resources.files("simfl.cli") / "fleet.yaml.template").read_text(encoding="utf-8")
"""The fleet's file, below its questions: lines of `#? KEY | question | usual answer`."""
QUESTIONS = {
    key: (question, usual) for key, question, usual in re.findall(r"#\? (\w+) \| (.*) \| (.*)", TEMPLATE)
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
            answers[key] = _asked(f"{number} of {len(QUESTIONS)}. {question}", default=usual)
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
    print_paragraph(f"Written to {file}: change it there, and plan again by simfl plan {file}", indent="  ")


def _asked(question: str, default: str) -> str:
    """Return the answer to a question; an end of the input, or Ctrl-C, ends the command as interrupted."""
    # The terminal would break a long prompt within a word.
    *above, last = wrapped(f"{question} [{default}]", indent="  ")
    for line in above:
        print_lines(line)
    try:
        return str(typer.prompt(last, default=default, show_default=False))
    except typer.Abort:
        raise typer.Exit(INTERRUPTED) from None


COMMON = {"wifi": "wifi5_2021", "lte": "lte_2021", "4g": "lte_2021", "5g": "5g_2021"}
"""Common name of a link -> the measured one."""


def _class(link: str) -> str:
    """Return the line of a kind of phones by its link and share, in any order.

    >>> _class("60 % Wi-Fi").strip().partition("  #")[0]
    "'wifi5_2021': {share: 60 %, network: {preset: 'wifi5_2021'}}"
    """
    share = re.search(r"[\d.]+\s*%", link)
    name = link.replace(share[0], "") if share else link
    name = COMMON.get(name.strip(" :").lower().replace("-", ""), name.strip(" :"))
    # Quotes and a plain key, so that any answer, such as a number, is refused as an unknown link.
    keys = f"{{share: {share[0] if share else '100 %'}, network: {{preset: {name!r}}}}}"
    return f"    {re.sub(r'[^A-Za-z0-9_]', '', name) or 'link'!r}: {keys}  # see docs/realism.md"


def written(answers: Mapping[str, str]) -> str:
    """Return the fleet's file of answers.

    >>> written({key: usual for key, (_, usual) in QUESTIONS.items()}).splitlines()[2].strip()
    "users: 2000000  # phones with the app, by your store's count"
    """
    values = {key: meant(answer) or answer for key, answer in answers.items()}
    values["classes"] = "\n".join(map(_class, re.split(r"[,;]\s+|[,;](?=\D)", answers["links"])))
    if size := re.fullmatch(r"([\d.]+)\s*MB\W*([\d.]+)\s*s?", answers["model"].strip()):
        values["model"] = f"{{mb: {size[1]}, train_s: {size[2]}}}"
    return Template(re.sub(r"#\?.*\n", "", TEMPLATE)).substitute(values)
