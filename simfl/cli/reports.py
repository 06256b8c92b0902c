"""Report on a finished run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simfl.cli.common import app, say
from simfl.errors import BadInput, need

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from simfl.reports.folder import Run


@app.command()
def report(
    folder: Annotated[
        Path, typer.Argument(help="A run's folder, or with --figures a sweep's.", metavar="DIR")
    ],
    rounds: Annotated[
        str | None,
        typer.Option(metavar="A:B", help="Rounds of trace.perfetto.json and of the page's timeline."),
    ] = None,
    figures: Annotated[
        bool, typer.Option("--figures", help="Write figures/*.svg and *.png too (needs matplotlib).")
    ] = False,
    latex: Annotated[
        bool, typer.Option("--latex", help="Print the breakdown as a LaTeX table and do nothing else.")
    ] = False,
) -> None:
    """Print a run's table again and what to speed up first; write report.html and trace.perfetto.json."""
    if latex and (figures or rounds is not None):
        raise typer.BadParameter("prints a table and nothing else", param_hint="--latex")
    if figures:
        need("--figures", "matplotlib.figure")
    if (folder / "means.csv").exists():
        _sweep(folder, figures)
    elif latex:
        _latex(folder)
    else:
        _run(folder, _from_to(rounds), figures)


def _run(folder: Path, asked: tuple[int, int] | None, figures: bool) -> None:
    from simfl.folder.result import atomic
    from simfl.reports import perfetto, terminal
    from simfl.reports.advice import advise
    from simfl.reports.page import page

    run = _opened(folder)
    chosen = perfetto.choose(run, asked)
    html = page(run, asked)
    if figures:
        from simfl.reports.figures.catalogue import of_run

        drawn = of_run(run)

    terminal.show(terminal.console(), run.summary, run.scenario.profile)
    for name, listed in run.rounds.items():
        say(f"{name}: {advise(run.traces[name], listed).sentence}", further="  ")
    with atomic(folder / "trace.perfetto.json") as file:
        file.writelines(perfetto.lines(run, chosen))
    with atomic(folder / "report.html") as file:
        file.write(html)
    for line in perfetto.left_out(run, chosen):
        say(f"trace.perfetto.json holds of {line} (--rounds A:B for others)", further="  ")
    say(f"Written to {folder}: report.html, trace.perfetto.json", further="  ")
    if figures:
        _save(folder, drawn)


def _sweep(folder: Path, figures: bool) -> None:
    if not figures:
        raise BadInput(f"{folder} holds a sweep, whose tables are there already; --figures draws its figure")
    from simfl.reports.figures.catalogue import of_sweep

    _save(folder, of_sweep(folder))


def _save(folder: Path, drawn: Mapping[str, Figure]) -> None:
    from simfl.reports.figures.catalogue import save

    say(f"Written to {folder / 'figures'}: {', '.join(save(folder / 'figures', drawn))}", further="  ")


def _latex(folder: Path) -> None:
    from simfl.reports.latex import table

    print(table(_opened(folder)), end="")


def _opened(folder: Path) -> Run:
    from simfl.folder.unfinished import recover
    from simfl.reports.folder import open_run
    from simfl.scenario.load import look_at

    recover(folder)
    resolved = folder / "resolved.yaml"
    scenario = look_at(resolved)
    return open_run(folder, scenario, resolved.read_text(encoding="utf-8"))


def _from_to(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, colon, last = text.partition(":")
    if not (colon and first.isdecimal() and last.isdecimal()):
        raise typer.BadParameter(f"{text!r} must be A:B, such as 0:9", param_hint="--rounds")
    return int(first), int(last)
