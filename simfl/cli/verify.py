"""A protocol held to what ours are held to, and the beginnings of a new one."""

from __future__ import annotations

from typing import Annotated

import typer

from simfl.cli.common import FAILED, Set, app, say, tell_whose_code


@app.command()
def verify(
    protocol: Annotated[str, typer.Argument(help="path.py:Name, or one of ours.", metavar="PROTOCOL")],
    set_: Set = None,
) -> None:
    """Hold a protocol to equal traces, exact sums, every loss, refusals, sizes, replays."""
    from simfl.scenario.load import parse_override
    from simfl.studies.verify import Subject, verify

    subject = Subject(protocol, dict(parse_override(text) for text in set_ or []))
    failed = 0
    for name, held_to, findings in verify(subject):
        tell_whose_code()
        say(f"{'FAILED' if findings else 'ok    '}  {name.replace('_', ' ')}: {held_to}", further=" " * 8)
        for finding in findings[:5]:
            say(f"        - {finding}", further=" " * 10)
        failed += bool(findings)
    if failed:
        raise typer.Exit(FAILED)
