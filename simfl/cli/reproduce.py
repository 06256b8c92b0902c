"""The papers' tables and figures, run again."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from simfl.cli.common import app, say
from simfl.errors import BadInput, need

AT_HELP = "Only print what an entry predicts for a setting that is not in the paper; nothing is stored."


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None,
        Argument(help="What to run and store, or `all`; without any, list them.", metavar="[NAME]..."),
    ] = None,
    page: Annotated[bool, Option("--page", help="Only write the pages from what is stored.")] = False,
    at: Annotated[str | None, Option(metavar="n=600,...", help=AT_HELP)] = None,
    root: Annotated[Path, Option(metavar="DIR", help="The checkout.")] = Path(),
) -> None:
    """Run the papers' tables and figures again: results to docs/reproduction, pages to docs.

    Example: simfl reproduce lightsecagg_table1
    """
    _find_papers()
    from papers.entry import Place
    from papers.registry import ENTRIES, chosen

    place = Place(root)
    if page and names:
        raise typer.BadParameter("runs nothing: give either names or --page", param_hint="--page")
    if at is not None:
        able = [entry.at for entry in chosen(names or []) if entry.at is not None]
        if len(able) != 1:
            some = ", ".join(name for name, entry in ENTRIES.items() if entry.at is not None)
            raise BadInput(f"--at: needs one name of those that predict other settings: {some}")
        for line in able[0](_numbers(at)):
            say(line)
        return
    if not page and not names:
        for name, entry in ENTRIES.items():
            say(f"{name:<22}{entry.paper} {entry.where}: {entry.title}", further=" " * 22)
        return
    from papers import store
    from papers.page import pages
    from simfl.folder.disk import write_text

    entries = chosen(names or [])
    if not place.page.parent.is_dir():
        raise BadInput(f"{place.root}: no folder docs: run it in a checkout, or name one by --root")
    if entries:
        need("--figures", "matplotlib.figure")
        from papers.figures import of_result
        from simfl.reports.figures import catalogue
    for entry in entries:
        stored = store.perform(entry, place)
        agreed = [cell.agrees for cell in stored.evidence.cells if cell.agrees is not None]
        print(f"{entry.name}: {sum(agreed)} of {len(agreed)} agree, {stored.cpu_s:.1f} s of CPU time")
        catalogue.save(place.results, of_result(stored), kinds=("svg",))
    results = {name: (entry, store.read(place, name)) for name, entry in ENTRIES.items()}
    found = [(entry, stored) for entry, stored in results.values() if stored is not None]
    for path, text in pages(found, place).items():
        path.parent.mkdir(exist_ok=True)
        write_text(path, text)
    missing = ", ".join(sorted(name for name, (_, stored) in results.items() if stored is None))
    say(f"Written to {place.page}: {len(found)} results" + (f"; not run yet: {missing}" if missing else ""))


def _numbers(text: str) -> dict[str, float]:
    """Return the numbers of `n=600,d=100000,dropout=0.3`."""
    found = {}
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        if name in found:
            raise BadInput(f"--at: {name} is given twice")
        try:
            found[name] = float(value)
        except ValueError:
            raise BadInput(f"--at: {part!r} must be NAME=NUMBER") from None
    return found


def _find_papers() -> None:
    """Make the package `papers`, which stands beside simfl in a checkout, importable."""
    checkout = Path(__file__).parents[2]
    if not (checkout / "papers" / "registry.py").is_file():
        raise BadInput("the papers' tables are no part of an installed simfl: run it in a checkout")
    if str(checkout) not in sys.path:
        sys.path.insert(0, str(checkout))
