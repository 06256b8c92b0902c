"""The command that says what an adversary learns."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from simfl.cli.common import FAILED, app, ask_before_long, keeping, say, stages, tell
from simfl.cli.folders import check_place
from simfl.cli.inputs import Set, Yes, load_scenario, names_and_files, settings, tell_whose_code
from simfl.errors import BadInput, counted, need

if TYPE_CHECKING:
    from simfl.privacy.leaks.lies import Lied
    from simfl.studies.proof.cases import Small, SmallBuffer
    from simfl.studies.proof.patterns import Found, Report

USERS = 4
SET_HELP = "A letter of the protocol, such as U=3, or a key of the scenario."


@app.command()
def leak(
    target: Annotated[
        str,
        Argument(
            help="A protocol (ours, or path.py:Name), or a scenario.",
            metavar="PROTOCOL|SCENARIO",
            autocompletion=names_and_files,
        ),
    ],
    users: Annotated[
        int | None,
        Option(min=3, help=f"Size of the cohort, {USERS} unless given; beyond 5 use --random."),
    ] = None,
    collude: Annotated[
        int, Option(min=0, help="The most users who pool what they see with the server: at most all but one.")
    ] = 1,
    random: Annotated[
        int | None, Option(min=1, metavar="COUNT", help="So many random loss patterns instead of all.")
    ] = None,
    lie: Annotated[
        str | None,
        Option(metavar="WHAT", help="A server that lies about: survivors, shared (who shared), or keys."),
    ] = None,
    seed: Annotated[int, Option(help="For keys and random graphs.")] = 0,
    set_: Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE", help=SET_HELP)] = None,
    yes: Yes = False,
    out: Annotated[str, Option(metavar="FILE", help="A leak's scenario.")] = "leak.yaml",
    figure: Annotated[
        Path | None,
        Option(metavar="FILE", help="An SVG or PNG of who could learn what, in the shown case."),
    ] = None,
) -> None:
    """Say what the server and colluding users learn beyond the sum, whoever is lost.

    Exit code 0: nothing; 1: a leak, with its proof; 2: a kernel of the protocol has no meaning on symbols.

    Example: simfl leak secagg --users 4
    """
    if random is not None:
        need("--random", "hypothesis", "explore")
    from simfl.scenario.shipped import is_scenario

    scenario = is_scenario(target)
    if scenario and lie is None:
        for option, given in (("--users", users), ("--random", random)):
            if given is not None:
                raise typer.BadParameter("goes with a protocol, not with a scenario", param_hint=option)
    else:
        check_place(Path(out))
    users = USERS if users is None else users
    if figure is not None:
        need("--figure", "matplotlib", "figures")
        check_place(figure)
        if figure.suffix not in (".svg", ".png"):
            raise typer.BadParameter(f"{figure} must end in .svg or .png", param_hint="--figure")
        if scenario or lie:
            raise typer.BadParameter("goes with a protocol's losses alone", param_hint="--figure")
    if lie is not None:
        leaks = _of_lies(target, users, collude, lie, seed, set_)
    elif scenario:
        leaks = _of_scenario(Path(target), collude, set_)
    else:
        leaks = _of_protocol(target, users, collude, random, seed, set_, Path(out), figure, yes)
    if leaks:
        raise typer.Exit(FAILED)


def _of_protocol(
    protocol: str,
    users: int,
    collude: int,
    random: int | None,
    seed: int,
    set_: Set,
    out: Path,
    figure: Path | None,
    yes: bool,
) -> bool:
    from simfl.runs.folder.disk import atomic
    from simfl.scenario.load import resolved_yaml
    from simfl.studies.proof.patterns import (
        Report,
        make_small,
        sample,
        seconds_for_all,
        seconds_for_sample,
        sweep,
    )

    small = make_small(protocol, users, seed, settings(set_))
    tell_whose_code()
    label, since = f"{small.cohort.protocol}, {users} users", time.monotonic()
    report = Report()
    losses = "every loss" if random is None else counted(random, "random loss pattern")
    if not yes:
        with stages() as stage:
            stage(f"{label}: timing a few of its losses")
            if random is None:
                expected = seconds_for_all(small, collude)
            else:
                expected = seconds_for_sample(small, random, collude)
        ask_before_long(f"{label}: {losses}", expected, yes)

    with keeping(lambda: f"; {report.rounds + report.pairs} rounds so far"), stages() as stage:
        stage(f"{label}: {losses}", report.so_far)
        if random is None:
            sweep(small, collude, report)
        else:
            sample(small, random, collude, report)
    pairs = f", {counted(report.pairs, 'pair')} of rounds" if report.pairs else ""
    counts = f"{report.rounds} rounds, {report.results} with a result{pairs}"
    say(f"{label}: {counts}, {time.monotonic() - since:.0f} s", further="  ")
    _show(report)
    if figure is not None:
        _draw(small, report.found or report.further, label, figure)
    if report.found is None:
        return False
    assert report.found.case is not None
    with atomic(out) as file:
        file.writelines(f"# {line}\n" for line in str(report.found).splitlines())
        file.write(resolved_yaml(small.scenario(report.found.case)))
    colluders = len(report.found.coalition)
    tell(f"Written to {out}; replay it with: simfl leak {out} --collude {colluders}")
    return True


def _draw(small: Small | SmallBuffer, found: Found | None, label: str, file: Path) -> None:
    """Draw the case that is shown, or one without losses."""
    from simfl.privacy.exposure_figure import exposure_figure
    from simfl.privacy.leaks.coalitions import coalitions_of
    from simfl.privacy.leaks.exposure import exposure
    from simfl.reports.figures.catalogue import save
    from simfl.studies.proof.cases import Case

    users = range(small.cohort.users)
    case = (
        found.case if found is not None and found.case is not None else Case((None,) * len(users), "timeout")
    )
    sizes = range(len(users) - 1)
    coalitions = [one for some in coalitions_of(len(users), sizes).values() for one in some]
    figure = exposure_figure(exposure(small.replay(case), coalitions), users, f"{label}\n{case}")
    save(file.parent, {file.stem: figure}, [file.suffix.removeprefix(".")])
    tell(f"Drawn in {file}")


def _of_lies(protocol: str, users: int, collude: int, lie: str, seed: int, set_: Set) -> bool:
    from simfl.privacy.leaks.lies import Lied, lies
    from simfl.studies.proof.cases import Small
    from simfl.studies.proof.patterns import make_small

    small = make_small(protocol, users, seed, settings(set_))
    tell_whose_code()
    label, since = f"{small.cohort.protocol}, {users} users", time.monotonic()
    if not isinstance(small, Small):
        raise BadInput(f"{label}: lies are told in rounds, and this protocol has none")
    report = Lied()
    with keeping(lambda: f"; {report.tried.total()} lies so far"), stages() as stage:
        stage(f"{label}: lies about {lie}", lambda: f", {counted(report.tried.total(), 'lie')}")
        lies(small.setup, lie, collude, report)
    say(f"{label}, a server that lies about {lie}: {time.monotonic() - since:.0f} s")
    for size, tried in sorted(report.tried.items()):
        who = f"the server and {counted(size, 'user')}" if size else "the server alone"
        leaks = report.leak is not None and len(report.coalition) == size
        found = "more than one sum" if leaks else "no more than one sum over enough users"
        say(f"  {who}: {counted(tried, 'lie')}, {found}", further="    ")
    if report.leak is not None:
        _tell(report)
    return report.leak is not None


def _of_scenario(file: Path, collude: int, set_: Set) -> bool:
    from simfl.studies.proof.patterns import Report, of_scenario

    scenario, leaks = load_scenario(file, set_), False
    for name in scenario.protocols:
        since = time.monotonic()
        with keeping(), stages() as stage:
            report = Report()
            stage(f"{name}: the run on symbols", report.so_far)
            of_scenario(scenario, name, collude, report)
        users = scenario.population.users
        say(f"{name}, {users} users, the whole run: {time.monotonic() - since:.0f} s")
        _show(report)
        leaks |= report.found is not None
    return leaks


def _show(report: Report) -> None:
    for size, views in sorted(report.views.items()):
        who = f"the server and {counted(size, 'user')}" if size else "the server alone"
        said = f"{counted(views, 'view')}, {_beyond(report.leaks[size])} the sum"
        if pairs := report.pair_views[size]:
            said += f"; {counted(pairs, 'view')} of two rounds, {_beyond(report.pair_leaks[size])} the sums"
        say(f"  {who}: {said}", further="    ")
    if report.found is not None:
        _tell(report.found)
    elif report.further is not None:
        size = len(report.further.coalition)
        say(f"With {counted(size, 'colluding user')} it would leak:")
        _tell(report.further)


def _beyond(leaks: int) -> str:
    return f"{leaks} with more than" if leaks else "nothing beyond"


def _tell(found: Found | Lied) -> None:
    for line in str(found).splitlines():
        say(f"  {line}", further=" " * (len(line) - len(line.lstrip()) + 6))
