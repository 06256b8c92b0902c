"""What there is: the scenario's schema, and the names of things."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from simfl.cli.common import app, say

NAMES = 20
"""Columns of the names in a list."""


class Things(StrEnum):
    """What `list` lists."""

    protocols = "protocols"
    models = "models"
    datasets = "datasets"
    profiles = "profiles"
    selection = "selection"
    availability = "availability"
    dropout = "dropout"
    partition_ = "partition"  # a text has a method of this name
    server = "server"
    clip = "clip"
    staleness = "staleness"


@app.command()
def schema(
    markdown: Annotated[
        bool, typer.Option("--markdown", help="As a page for people: docs/scenario.md.")
    ] = False,
) -> None:
    """Print the JSON Schema of scenarios, for editors."""
    if markdown:
        from simfl.scenario import reference

        print(reference.markdown(), end="")
        return
    from simfl.scenario.load import json_schema

    print(json.dumps(json_schema(), indent=2))


@app.command("list")
def list_command(things: Annotated[Things, typer.Argument(help="What to list.")]) -> None:
    """List protocols, models, datasets, profiles, or the kinds of another thing."""
    from simfl.catalog import listed

    for name, text in listed(things):
        if len(name) < NAMES - 1:
            say(f"{name:<{NAMES}}{text}".rstrip(), further=" " * NAMES)
        else:  # a long name has a line of its own
            print(name)
            say(" " * NAMES + text, further=" " * NAMES)
