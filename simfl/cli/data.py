"""Fetch published data sets."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from simfl.cli.common import app, say
from simfl.cli.help import App

data = App(help="Fetch published data sets.")
app.add_typer(data, name="data")


@data.callback()
def group() -> None:
    """Fetch published data sets."""


@data.command()
def fetch(
    name: Annotated[
        str, Argument(help="mnist, fashion_mnist, cifar10, cifar100 or att_faces.", metavar="NAME")
    ],
    root: Annotated[
        Path,
        Option("--root", metavar="DIR", envvar="SIMFL_DATA", help="The folder of data sets (SIMFL_DATA)."),
    ],
) -> None:
    """Download a data set from its publisher, check it, and go on where an earlier download broke off.

    Example: simfl data fetch mnist --root data
    """
    from simfl.learning.data.fetch import fetch

    folder = fetch(name, root, lambda url: say(url))
    say(f"Written to {folder}; SIMFL_DATA={root} in the environment lets scenarios find it", further="  ")
