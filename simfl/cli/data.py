"""Fetch data sets; turn recorded users, devices and links into files that a scenario can name."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from simfl.cli.common import app, print_paragraph
from simfl.cli.help import App
from simfl.errors import BadInput, need

if TYPE_CHECKING:
    from simfl.connect.importers import Imported

NAME_HELP = "mnist, fashion_mnist, cifar10, cifar100, att_faces or shakespeare_plays."
ROOT_HELP = "The folder of data sets (SIMFL_DATA)."
TRACES_HELP = "Traces by pairs, uplink and downlink, one pair per user."
TABLE_HELP = "A table of speed tests: CSV, one location per row."

data = App(help="Fetch published data sets.")
app.add_typer(data, name="data")


@data.callback()
def group() -> None:
    """Fetch published data sets."""


@data.command()
def fetch(
    name: Annotated[str, Argument(help=NAME_HELP, metavar="NAME")],
    root: Annotated[Path, Option("--root", metavar="DIR", envvar="SIMFL_DATA", help=ROOT_HELP)],
) -> None:
    """Download a data set from its publisher, check it, and continue an earlier download that was
    interrupted.

    Example: simfl data fetch mnist --root data
    """
    from simfl.learning.data.fetch import fetch

    folder = fetch(name, root, lambda url: print_paragraph(url))
    remedy = f"SIMFL_DATA={root} in the environment lets scenarios find it"
    print_paragraph(f"Written to {folder}; {remedy}", indent="  ")


import_ = App(help="Turn recorded users, devices and links into files that a scenario can name.")
app.add_typer(import_, name="import")

Out = Annotated[Path, Option("--out", metavar="DIR", help="The folder of the files that are written.")]
Parquet = Annotated[bool, Option("--parquet", help="Write Parquet instead of CSV.")]
Force = Annotated[bool, Option("--force", help="Replace files that exist already.")]


@import_.command()
def fedscale(
    behave: Annotated[Path, Argument(help="FedScale's client_behave_trace.", metavar="BEHAVE")],
    capacity: Annotated[Path, Argument(help="FedScale's client_device_capacity.", metavar="CAPACITY")],
    out: Out,
    parquet: Parquet = False,
    force: Force = False,
) -> None:
    """Write when phones were online, and the rates of devices and links. The pickles are not executed.

    Example: simfl import fedscale BEHAVE CAPACITY --out traces
    """
    files = _files(out, ("online", "devices", "capacity"), parquet, force)
    from simfl.connect.importers.fedscale import fedscale

    _write(files, fedscale(behave, capacity))


@import_.command()
def mahimahi(
    traces: Annotated[list[Path], Argument(help=TRACES_HELP, metavar="UP DOWN")],
    out: Out,
    window_ms: Annotated[int, Option("--window-ms", min=1, help="Milliseconds of an average rate.")] = 1000,
    parquet: Parquet = False,
    force: Force = False,
) -> None:
    """Write the mean rates of recorded links, window by window.

    Example: simfl import mahimahi lte.up lte.down --out traces
    """
    # Pairs are given in a row, as shells expand `*`.
    if len(traces) % 2:
        raise typer.BadParameter("must be an uplink and a downlink for each user", param_hint="UP DOWN")
    # Before the importer is imported: what cannot be written is refused first.
    files = _files(out, ("rates",), parquet, force)
    from simfl.connect.importers.mahimahi import mahimahi

    _write(files, mahimahi(list(zip(traces[::2], traces[1::2], strict=True)), window_ms))


@import_.command()
def ookla(
    table: Annotated[Path, Argument(help=TABLE_HELP, metavar="CSV")],
    out: Out,
    parquet: Parquet = False,
    force: Force = False,
) -> None:
    """Write the rates and latencies of a table of speed tests.

    Example: simfl import ookla tiles.csv --out traces
    """
    files = _files(out, ("capacity",), parquet, force)
    from simfl.connect.importers.ookla import ookla

    _write(files, ookla(table))


def _files(out: Path, tables: tuple[str, ...], parquet: bool, force: bool) -> dict[str, Path]:
    """Return the file of each table. BadInput, before anything long runs, if one cannot be written."""
    if parquet:
        need("--parquet", "pyarrow.parquet")
    from simfl.runs.folder.disk import make

    make(out)
    files = {table: out / f"{table}.{'parquet' if parquet else 'csv'}" for table in tables}
    for file in files.values():
        if file.is_dir() or (file.exists() and not force):
            remedy = "it is a folder" if file.is_dir() else "--force replaces it"
            raise BadInput(f"{file} exists already: {remedy}")
    return files


def _write(files: dict[str, Path], imported: "Imported") -> None:
    from simfl.runs.folder.disk import atomic

    for name, file in files.items():
        table = imported.tables[name]
        if file.suffix == ".parquet":
            from simfl.reports.tables import write_parquet

            # Without rows zip has no columns, but the file must.
            columns = list(zip(*table.rows, strict=True)) or [()] * len(table.columns)
            write_parquet(file, dict(zip(table.columns, columns, strict=True)))
        else:
            with atomic(file) as stream:
                # The csv module writes \r\n unless its option is given, which is no line end of our other
                # files.
                writer = csv.writer(stream, lineterminator="\n")
                writer.writerow(table.columns)
                writer.writerows(table.rows)
    # All files are in one folder.
    (folder,) = {file.parent for file in files.values()}
    print_paragraph(f"Written to {folder}: {', '.join(file.name for file in files.values())}", indent="  ")
    print_paragraph(imported.found, indent="  ")
