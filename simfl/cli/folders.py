"""The places of files that commands write: refused, made, and cleared up."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simfl.cli.common import tell
from simfl.errors import BadInput


def check_place(file: Path) -> None:
    """Refuse a file that cannot be written because of the folders that are there."""
    if file.is_dir():
        raise BadInput(f"{file} is a folder")
    if not file.parent.is_dir():
        raise BadInput(f"{file}: there is no folder {file.parent}")


def tell_written(folder: Path, shown_by: str) -> None:
    """Print where a run was written, its size there, and the command that shows it."""
    nbytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    megabytes = math.ceil(nbytes / 1e5) / 10  # 0.1 MB at least
    tell(f"Written to {folder} ({megabytes:.1f} MB; {shown_by} shows it)")


@contextmanager
def telling_removed(folder: Path) -> Iterator[None]:
    """Name on stderr the reports of earlier results that new results removed from a run's folder."""
    from simfl.runs.folder.outdated import outdated_files

    before = outdated_files(folder)
    try:
        yield
    finally:
        if gone := [str(path.relative_to(folder)) for path in before if not path.exists()]:
            tell(f"Removed from {folder}, as of earlier results: {', '.join(gone)}", error=True)
