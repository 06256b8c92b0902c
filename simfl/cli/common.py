"""The parts that commands share: the application, exit codes, options, loading, and printing."""

from __future__ import annotations

import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simfl.results.text import printable

if TYPE_CHECKING:
    from simfl.scenario.schema import Scenario

FAILED, BAD, INTERRUPTED, TERMINATED = 1, 2, 130, 143

_ending_signals: list[int] = []


def heed_termination() -> None:
    """Let SIGTERM, which batch systems send, end a command as Ctrl-C does."""

    def end(number: int, frame: object) -> None:
        _ending_signals.append(number)
        if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None):  # as in a shell's background
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)  # which asyncio handles while it runs

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, end)


def interrupted() -> int:
    """Return the exit code of a command that was interrupted."""
    return TERMINATED if _ending_signals else INTERRUPTED


@contextmanager
def keeping(kept: Callable[[], str]) -> Iterator[None]:
    """Where a command is interrupted or fails, end it; its message closes with `kept`."""
    from simfl.errors import RunFailed

    try:
        yield
        return
    except KeyboardInterrupt:
        message, code = "Interrupted", interrupted()
    except (RunFailed, OSError) as error:
        message, code = f"simfl: {error}", FAILED
    tell(f"{message}{kept()}", error=True)
    raise typer.Exit(code)


WIDTH = 80  # columns of text, on a terminal and off it
PATIENCE_S = 2.0  # after which a stage is told off a terminal

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


def overrides(set_: Set) -> dict[str, Any]:
    """Return the values of `--set` by dotted path."""
    from simfl.scenario.load import parse_override

    return dict(parse_override(text) for text in set_ or [])


def load_scenario(
    scenario: Path, set_: Set, seed: Seed, clock: ClockOption, protocols: Protocols, workers: Workers
) -> Scenario:
    """Return the scenario of a file with the command line's overrides."""
    from simfl.scenario.load import load, select_protocols

    given = {"seed": seed, "clock": clock, "workers": workers}
    loaded = load(scenario, overrides(set_) | {k: value for k, value in given.items() if value is not None})
    tell_whose_code()
    if protocols is not None:
        loaded = select_protocols(loaded, [name.strip() for name in protocols.split(",")])
    return loaded


_named_files: set[str] = set()


def tell_whose_code() -> None:
    """Name each file whose code is executed, once: it can do whatever its user can."""
    from simfl.python_files import executed

    for file in executed():
        if file not in _named_files:
            _named_files.add(file)
            tell(f"Runs the code of {file}", error=True)


def say(text: str, further: str = "") -> None:
    """Print a paragraph within `WIDTH` columns, each line but the first behind `further`. No word is cut."""
    tell(
        textwrap.fill(text, WIDTH, subsequent_indent=further, break_long_words=False, break_on_hyphens=False)
    )


def tell(text: str, error: bool = False) -> None:
    """Print lines as they are, to stderr if it is an `error`; control characters are spelled out."""
    print(printable(text), file=sys.stderr if error else sys.stdout)


@contextmanager
def stages() -> Iterator[Callable[[str], None]]:
    """Yield a function to call with each stage of a long command as it begins, which stderr shows.

    On a terminal one line shows it, and goes at the end; elsewhere a stage that lasts has a line of its own.
    """
    if sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("") as status:
            yield lambda stage: status.update(f"{stage} ...")
        return
    waiting = threading.Timer(0, str)

    def begin(stage: str) -> None:
        nonlocal waiting
        waiting.cancel()
        waiting = threading.Timer(PATIENCE_S, tell, (f"simfl: {stage} ...", True))
        waiting.daemon = True
        waiting.start()

    try:
        yield begin
    finally:
        waiting.cancel()
