"""Files of earlier results in a run's folder: reports, and tables that not every run writes.

Invariant: only files with names that simfl gives, in a folder that holds a run, are removed. Other files stay
(`test_files_in_a_folder_without_a_run_stay`).
"""

import re
from pathlib import Path

from simfl.errors import BadInput
from simfl.runs.results.summary import read

_REPORTS = ("report.html", "trace.perfetto.json", "breakdown.parquet", "energy.csv", "live.json")
_FIGURE = re.compile(r"(breakdown|timing(_[0-9]+)?|accuracy|staleness|participation)\.(svg|png)")
_ATTACK = re.compile(r"attack-[A-Za-z0-9._-]+\.(json|svg)")


def outdated_files(folder: Path) -> list[Path]:
    """Return the files about the results in a folder that new results do not replace."""
    # Without a summary the folder held no results of ours, and its files are the user's.
    if not (folder / "summary.json").is_file():
        return []
    # Whole names are compared: a figure of the user's own beside ours stays.
    figures = [path for path in sorted((folder / "figures").glob("*")) if _FIGURE.fullmatch(path.name)]
    attacks = [path for path in sorted(folder.glob("attack-*")) if _ATTACK.fullmatch(path.name)]
    files = (*(folder / name for name in _REPORTS), *_recorded_updates(folder), *attacks, *figures)
    return [path for path in files if path.is_file()]


def _recorded_updates(folder: Path) -> list[Path]:
    """Return the recorded updates of the entries that the summary names."""
    # The summary is read only if it is needed, as it may be long.
    if not any(folder.glob("updates-*.npz")):
        return []
    try:
        return [folder / f"updates-{name}.npz" for name in read(folder / "summary.json").protocols]
    # A summary that cannot be read names no entry. Its updates then stay, rather than files that may be the
    # user's go.
    except BadInput:
        return []


def remove_outdated(folder: Path) -> None:
    """Remove the outdated files, and the folder of figures if that empties it."""
    for path in outdated_files(folder):
        path.unlink(missing_ok=True)
    figures = folder / "figures"
    if figures.is_dir() and not any(figures.iterdir()):
        figures.rmdir()
