"""The reference of the command line, `docs/commands.md`, from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

from simfl.cli.common import app

HEAD = """# Commands

Every command with its arguments and options. Made from the code:
`python -m docs.tools.commands > docs/commands.md`. `simfl COMMAND --help` prints the same. What is
**needed** has no default.

Exit codes: 0 done, 1 the run failed or an aggregate is not exact (stderr names it), 2 a bad scenario, bad
usage or a damaged file, 3 an entry of the protocols completed nothing or broke its promise of privacy, 130
interrupted, 141 the output was closed, 143 terminated.
"""


def markdown() -> str:
    """Return the whole page."""
    return "\n\n".join([HEAD.rstrip(), *_sections(get_command(app), "simfl")]) + "\n"


def _sections(group: Any, prefix: str) -> Iterator[str]:
    assert isinstance(group, TyperGroup)
    for name, command in sorted(group.commands.items()):
        if isinstance(command, TyperGroup):
            yield from _sections(command, f"{prefix} {name}")
            continue
        if command.hidden:
            continue
        shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
        arguments = [_value(p) for p in shown if p.param_type_name == "argument"]
        yield f"## {prefix} {name}"
        yield f"`{' '.join([prefix, name, *arguments])}`"
        yield "\n\n".join(" ".join(part.split()) for part in (command.help or "").split("\n\n"))
        if shown:
            rows = ((_name(p), _default(p), getattr(p, "help", None) or "") for p in shown)
            cells = (" | ".join(" ".join(cell.replace("|", " or ").split()) for cell in row) for row in rows)
            yield "\n".join(["|  | default |  |", "|---|---|---|", *(f"| {line} |" for line in cells)])


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_value(parameter)}`"
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    return f"`{names} {_value(parameter)}".rstrip() + "`" + ", any number" * bool(parameter.multiple)


def _value(parameter: Any) -> str:
    """Return the value of an argument or option as `--help` has it: its own word, its choices or its type."""
    choices = "|".join(getattr(parameter.type, "choices", ()))
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or choices or parameter.name.upper())
    kind = parameter.type.name.removesuffix(" range")
    return "" if kind == "boolean" else str(parameter.metavar or choices or kind.upper())


def _default(parameter: Any) -> str:
    if parameter.required:
        return "**needed**"
    value = parameter.default
    return "" if value in (None, False) or callable(value) else f"`{value}`"


if __name__ == "__main__":
    print(markdown(), end="")
