"""README.md: its commands run, in small; its options, names, files and tables are those of the code."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import tomllib
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter
from typer.core import TyperGroup
from typer.main import get_command

import simfl
from docs.tools import first_run
from simfl.cli import app
from simfl.cli.authoring import THINGS
from simfl.protocols.registry import PROTOCOLS
from simfl.runs.folder import result
from simfl.scenario import schema
from simfl.scenario.schema_shape import hints
from tests.docs.pages import ROOT, Command, blocks, differs, script
from tests.docs.shell import Shell
from tests.engine.harness import FILES

PAGE = ROOT / "README.md"
TEXT = PAGE.read_text(encoding="utf-8")

SMALL = {"rounds": 1, "payload": "shadow", "clock": "modelled"}
"""Instead of hours: a round, counted and not done."""

TWENTY = {"population.users": 20, "privacy.T": 2, "privacy.D": 2, "privacy.U": 16}

OTHERWISE = {
    "sync_breakdown": {**SMALL, **TWENTY},
    "dropout_edges": {"payload": "shadow"},  # a round for each of its losses
    "tutorial": {"rounds": 1},  # repeats are of a measured clock
    "multi_round": {**SMALL, "population.availability": "always"},  # its schemes skip rounds otherwise
    "reconstruction": {"rounds": 10},  # the attack needs updates, and more equations than one
}


def smaller(command: Command) -> list[str]:
    """What is put behind a command so that it takes a second."""
    arguments = command.simfl or []
    if arguments[0] == "explore":
        return ["--random", "5"]
    if arguments[:2] == ["privacy", "attack"]:
        return ["--with", {"membership": "shadows=2"}.get(arguments[2], "steps=3")]
    if arguments[0] != "run":
        return []
    name = arguments[1].removeprefix("scenarios/").removesuffix(".yaml")
    small: dict[str, Any] = OTHERWISE.get(name, SMALL)
    shown = {word.partition("=")[0].removeprefix("--") for word in arguments}
    given = {key: value for key, value in small.items() if key not in shown}
    return [word for key, value in given.items() for word in ("--set", f"{key}={value}")]


@pytest.mark.ci
def test_its_commands_run(shell: Shell) -> None:
    commands = [command for block in blocks(PAGE, "") for command in script(block)]
    printed = {command.line: shell.run(command, *smaller(command)) for command in commands}
    assert all(printed.values()), printed
    assert len(commands) >= 13
    (table,) = [block.text for block in blocks(PAGE, "") if block.text.startswith("async_buffer:")]
    assert labels(table) == labels(printed["python run.py scenarios/async_buffer.yaml --clock modelled"])


@pytest.mark.ci
def test_its_first_output_is_that_of_the_command() -> None:
    """Line by line; `python -m docs.tools.first_run` writes it anew where figures changed on purpose."""
    assert first_run.COMMAND in TEXT
    shown, printed = first_run.between()[2], first_run.excerpt(first_run.printed())
    assert not differs(tuple(shown.splitlines()), printed)
    assert not differs(tuple(printed.splitlines()), shown)
    assert len(shown.splitlines()) <= 20


def labels(table: str) -> list[str]:
    return [line.partition("│")[0].strip() for line in table.splitlines() if "│" in line]


def test_inline_commands_and_options_are_there() -> None:
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    commands = {name: command for name, command in group.commands.items() if not command.hidden}
    assert set(re.findall(r"^\| `simfl ([a-z]+)", TEXT, re.M)) == set(commands)
    assert set(re.findall(r"`simfl ([a-z]+)", TEXT)) <= set(commands)
    known = {option for command in commands.values() for p in command.params for option in p.opts}
    used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", TEXT)) - {"--index-url", "--no-compile"}  # pip's
    used -= {"--install-completion"}  # typer's
    assert len(used) > 10
    assert used <= known, used - known
    (listed,) = re.findall(r"`simfl list ([a-z]+(?:\\\|[a-z]+)+)`", TEXT)
    assert listed.split("\\|") == list(THINGS)


def test_files_and_extras_are_there() -> None:
    named = set(re.findall(r"\b(?:scenarios|simfl|docs|benchmarks)/[\w./]+\.(?:yaml|py|md)", TEXT))
    assert len(named) > 8
    assert [name for name in named if not (ROOT / name).is_file()] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(re.findall(r"`simfl\[(\w+)\]`", TEXT)) == set(project["optional-dependencies"]) - {"dev"}


def test_its_tables_of_protocols_and_files_are_complete() -> None:
    section = TEXT.partition("\n## Protocols\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.M) == list(PROTOCOLS)
    section = TEXT.partition("\n## Files of a run\n")[2].partition("\n## ")[0]
    files = set(re.findall(r"^\| `([\w.-]+)` \|", section, re.M))
    assert files == FILES | {"updates-NAME.npz", "energy.csv"}
    assert f"(schema {result.SCHEMA})" in section


def test_what_check_prints_of_sparse_graphs(shell: Shell) -> None:
    (block,) = [block for block in blocks(PAGE, "") if block.text.startswith("# secagg_plus")]
    printed = shell.run(Command("simfl check scenarios/sync_breakdown.yaml"))
    assert block.text in printed


@pytest.mark.ci
def test_its_python_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = simfl.simulate

    async def simulate(scenario: str, overrides: dict[str, Any] | None = None) -> simfl.Result:
        return await whole(scenario, {**(overrides or {}), **SMALL})

    run = simfl.run
    monkeypatch.setattr(simfl, "simulate", simulate, raising=False)
    monkeypatch.setattr(
        simfl, "run", lambda s, overrides: run(s, {**overrides, **SMALL, **TWENTY}), raising=False
    )
    monkeypatch.chdir(ROOT)
    (block,) = blocks(PAGE, "python")
    first, rest = block.text.split("\nresult = await")
    names: dict[str, Any] = {}
    exec(first, names)  # apart: `run` has an event loop of its own
    code = compile(f"result = await{rest}", "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    coroutine = eval(code, names)
    assert inspect.iscoroutine(coroutine)
    asyncio.run(coroutine)
    assert list(names["result"].traces) == [
        "fedbuff", "lightsecagg_async", "fedbuff_poly", "lightsecagg_async_poly",
    ]  # fmt: skip


def test_its_yaml_is_valid() -> None:
    owner = {"availability": schema.Population, "dropout": schema.Scenario, "deadlines": schema.Scenario}
    seen = []
    for block in blocks(PAGE, "yaml"):
        if block.text.startswith("base:"):
            shown = [line.partition(" #")[0].rstrip() for line in block.text.splitlines()]
            study = (ROOT / "scenarios" / "studies" / "users_and_losses.yaml").read_text(encoding="utf-8")
            for line in shown:
                assert line.startswith("set:") or "..." in line or line in study, line
            given = yaml.safe_load(next(line for line in shown if line.startswith("set:")))["set"]
            assert given.items() <= yaml.safe_load(study)["set"].items()
            seen.append("study")
        elif block.text.startswith("learning:"):
            schema.Learning.model_validate(yaml.safe_load(block.text)["learning"])
            seen.append("learning")
        else:
            for line in block.text.splitlines():
                ((key, value),) = yaml.safe_load(line).items()
                TypeAdapter(hints(owner[key])[key]).validate_python(value)
                seen.append(key)
    assert {"study", "learning", "availability", "dropout", "deadlines"} == set(seen)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("study", "table"), [("users_and_losses", "                aggregate"), ("multi_round", "Who took part")]
)
def test_the_tables_of_its_studies(shell: Shell, study: str, table: str) -> None:
    """Whole: minutes each. Accuracies are sums of floats, and are left out."""
    (block,) = [block for block in blocks(PAGE, "") if block.text.startswith(table)]
    printed = shell.run(Command(f"simfl sweep scenarios/studies/{study}.yaml"))

    def lines(text: str) -> list[str]:
        return [re.sub(r"^(\w+ +)\d\.\d{3}±\d\.\d{3}", r"\1", line) for line in text.splitlines()]

    said = [line for shown in lines(block.text) for line in ("...", shown)]
    assert not differs(tuple(said), "\n".join(lines(printed)))
