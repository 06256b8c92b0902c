"""Help texts and mistyped commands, as a terminal of 80 columns shows them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from simfl.cli import main
from simfl.cli.common import app
from simfl.cli.help import PURPOSES, first_sentence


def leaves(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from leaves(command, (*path, name))
        elif not command.hidden:
            yield (*path, name), command


COMMANDS = dict(leaves(get_command(app)))
by_command = pytest.mark.parametrize("path", COMMANDS, ids=" ".join)


def helped(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *path: str) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        main([*path, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_help_groups_all_commands_with_run_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command has a whole sentence."""
    text = helped(capsys, monkeypatch)
    listed = [name for names in PURPOSES.values() for name in names]
    commands = get_command(app).commands  # type: ignore[attr-defined]
    assert sorted(listed) == sorted(name for name, command in commands.items() if not command.hidden)
    assert listed[0] == "run"
    words = " ".join(text.split())
    places = [words.index(f" {name} {first_sentence(commands[name].help)}") for name in listed]
    assert places == sorted(places)
    assert "..." not in text.partition("Simulate:")[2]


@by_command
def test_help_has_an_example_that_parses(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No backslash of rich's markup, no line beyond 80 columns, and the help of each argument."""
    text = helped(capsys, monkeypatch, *path)
    assert "\\" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("rguments:") <= 1
    (example,) = [line for line in text.splitlines() if line.startswith("  Example: simfl ")]
    words = shlex.split(example.partition("simfl ")[2].partition(" > ")[0])
    assert tuple(words[: len(path)]) == path
    command = COMMANDS[path]
    context = command.make_context(path[-1], words[len(path) :], resilient_parsing=True)
    command.make_parser(context).parse_args(words[len(path) :])  # which refuses unknown options
    for parameter in command.params:
        assert " ".join((parameter.help or "-").split())[:20] in " ".join(text.split())


@pytest.mark.parametrize("words", [[], ["run"]])
def test_next_steps_are_shown_without_a_command_or_scenario(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Fewer than 15 lines of at most 100 columns, in which each command parses; exit code 2."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) < 15
    assert max(map(len, lines)) <= 100
    steps = [
        line.partition("  simfl ")[2].partition("   ")[0].split() for line in lines if "  simfl " in line
    ]
    assert ["run", "minimal"] in steps
    for name, *arguments in steps:
        command = COMMANDS[(name,)]
        command.make_context(name, arguments, resilient_parsing=True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rnu"], "Error: no command 'rnu'; did you mean 'run'?"),
        (["zzz"], "Error: no command 'zzz'"),
        (["list", "protocol"], "Error: Invalid value for THING: 'protocol' must be one of scenarios, "),
    ],
)
def test_mistyped_word_is_named_once(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command, and a thing to list."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    errors = capsys.readouterr().err
    assert ended.value.code == 2
    assert errors.splitlines()[-1].startswith(message)
    assert errors.count("did you mean") <= 1
