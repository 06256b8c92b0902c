"""What all commands share: the application, exit codes, options, and how a scenario is loaded."""

from __future__ import annotations

import signal
import sys
import textwrap
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simfl.results.text import printable

if TYPE_CHECKING:
    from simfl.scenario.schema import Scenario

FAILED, BAD, INTERRUPTED, TERMINATED = 1, 2, 130, 143

_signals: list[int] = []
"""The signals to end that have come."""


def heed_termination() -> None:
    """Let SIGTERM, which batch systems send, end a command as Ctrl-C does."""

    def end(number: int, frame: object) -> None:
        _signals.append(number)
        if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None):  # as in a shell's background
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, end)


def interrupted() -> int:
    """The exit code of a command that was interrupted."""
    return TERMINATED if _signals else INTERRUPTED


WIDTH = 80
"""Columns of text, on a terminal and off it."""

app = typer.Typer(
    name="simfl",
    help="Federated learning with real secure aggregation, in virtual time.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

ScenarioFile = Annotated[Path, typer.Argument(help="A scenario, YAML.", metavar="SCENARIO")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a value, such as a.b=c.")
]
Seed = Annotated[int | None, typer.Option(help="The scenario's seed.")]
ClockOption = Annotated[
    str | None, typer.Option(metavar="CLOCK", help="measured, modelled, or recorded:DIR.")
]
Protocols = Annotated[str | None, typer.Option(metavar="A,B", help="Only these of its protocols.")]
Workers = Annotated[int | None, typer.Option(help="Threads for the real work; 0: in line.")]


def load_scenario(
    scenario: Path,
    set_: list[str] | None,
    seed: int | None,
    clock: str | None,
    protocols: str | None,
    workers: int | None,
) -> Scenario:
    """The scenario of a file with the command line's overrides."""
    from simfl.scenario.load import load, parse_override, select_protocols

    overrides: dict[str, Any] = dict(parse_override(text) for text in set_ or [])
    given = {"seed": seed, "clock": clock, "workers": workers}
    overrides |= {key: value for key, value in given.items() if value is not None}
    loaded = load(scenario, overrides)
    tell_whose_code()
    if protocols is not None:
        loaded = select_protocols(loaded, [name.strip() for name in protocols.split(",")])
    return loaded


def tell_whose_code() -> None:
    """Say once which files' code is executed: it can do whatever its user can."""
    from simfl.python_files import executed

    for file in executed():
        if file not in _told:
            _told.add(file)
            tell(f"Runs the code of {file}", error=True)


_told: set[str] = set()


def say(text: str, further: str = "") -> None:
    """Print a paragraph within `WIDTH` columns, each line but the first behind `further`. No word is cut."""
    tell(
        textwrap.fill(text, WIDTH, subsequent_indent=further, break_long_words=False, break_on_hyphens=False)
    )


def tell(text: str, error: bool = False) -> None:
    """Print lines as they are, to stderr if it is an `error`; what a terminal would obey is spelled out."""
    print(printable(text), file=sys.stderr if error else sys.stdout)
