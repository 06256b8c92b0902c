"""The places of files that commands write: refused, made, and cleared up."""

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import typer

from simfl.cli.common import tell
from simfl.errors import BadInput


def check_place(file: Path) -> None:
    """Refuse a file that cannot be written because of the folders that are there."""
    if file.is_dir():
        raise BadInput(f"{file} is a folder")
    if not file.parent.is_dir():
        raise BadInput(f"{file}: there is no folder {file.parent}")


@contextmanager
def run_folder(out: Path | None, name: str) -> Iterator[Path]:
    """Yield the folder of a run, `out` or a new one; remove it where nothing came of the run."""
    from simfl.runs.folder.disk import reserve
    from simfl.runs.folder.latest import RUNS

    folder = out or reserve(RUNS / name)
    try:
        yield folder
    except (BadInput, typer.Exit):
        for made in (folder, RUNS):
            with suppress(OSError):  # where it is not empty, or not there
                made.rmdir()
        raise


def tell_written(folder: Path, shown_by: str) -> None:
    """Print where a run was written, its size there, and the command that shows it."""
    nbytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    megabytes = math.ceil(nbytes / 1e5) / 10  # 0.1 MB at least
    tell(f"Written to {folder} ({megabytes:.1f} MB; {shown_by} shows it)")


@contextmanager
def telling_removed(folder: Path) -> Iterator[None]:
    """Name on stderr the reports of earlier results that new results removed from a run's folder."""
    from simfl.runs.folder.earlier import outdated

    before = outdated(folder)
    try:
        yield
    finally:
        if gone := [str(path.relative_to(folder)) for path in before if not path.exists()]:
            tell(f"Removed from {folder}, as of earlier results: {', '.join(gone)}", error=True)
