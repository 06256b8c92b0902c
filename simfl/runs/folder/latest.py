"""The latest of the runs in a folder.

A run's date is that of files which only the run writes. So `simfl report`, which writes reports and the files
of a killed run, does not make an old run the latest (`test_a_report_does_not_make_a_run_the_latest`).
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from simfl.config.digests import SUMS
from simfl.errors import BadInput
from simfl.runs.folder.disk import reserve
from simfl.runs.folder.repeats import repeats_in
from simfl.runs.folder.saved_rounds import BASE, NAME
from simfl.runs.folder.unfinished import has_saved
from simfl.runs.results.units import listed

RUNS = Path("runs")
"""Folder of runs without `--out`."""
MAX_NAMED = 5
"""Runs that a message names."""
OWN = ("summary.json", "trace.jsonl", "resolved.yaml")
"""Files of every run; neither a sweep nor a paper's result has all of them."""


def latest(runs: Path = RUNS) -> Path:
    """Return the folder in `runs` whose run, finished or not, was written last.

    Raises:
        BadInput: No folder there holds a run.
    """
    folders = runs.iterdir() if runs.is_dir() else ()
    dated = [(when, folder) for folder in folders if (when := _written_ns(folder))]
    if not dated:
        raise BadInput(f"{runs}: holds no run: run a scenario, or name a run's folder")
    return max(dated)[1]


@contextmanager
def run_folder(out: Path | None, name: str) -> Iterator[Path]:
    """Yield the folder of a run, `out` or a new one; remove it if the run failed and left nothing there."""
    folder = out or reserve(RUNS / name)
    try:
        yield folder
    except BaseException:
        # The inner folder first, since `RUNS` is empty only without it.
        for empty in (folder, RUNS):
            # A folder with files is not removed, and one that was never created cannot be.
            with suppress(OSError):
                empty.rmdir()
        raise


def need_run(folder: Path) -> None:
    """Raise BadInput for a folder that holds neither a run, finished or not, nor repeats of one."""
    if not any((folder / name).exists() for name in (*OWN, SUMS, NAME)) and not repeats_in(folder):
        raise BadInput(f"{folder} is no run's folder; {runs_here()}")


def runs_here() -> str:
    """Return the folders of runs, the latest first, for a message."""
    folders = RUNS.iterdir() if RUNS.is_dir() else ()
    dated = sorted(((_written_ns(folder), folder) for folder in folders), reverse=True)
    named = [folder for when, folder in dated if when]
    return f"runs here: {listed(named, MAX_NAMED)}" if named else f"there are no runs in {RUNS}/"


def is_latest(folder: Path, runs: Path = RUNS) -> bool:
    """Return True if `latest` returns this folder."""
    return folder.resolve().parent == runs.resolve() and latest(runs).resolve() == folder.resolve()


def _written_ns(folder: Path) -> int:
    """Return the time [ns] at which a run's folder was written; 0 if it holds no run that can be shown."""
    try:
        if has_saved(folder):
            return (folder / NAME / BASE).stat().st_mtime_ns
        if all((folder / name).is_file() for name in OWN):
            return (folder / OWN[0]).stat().st_mtime_ns
        # A folder of repeats is as young as its youngest repeat.
        return max(map(_written_ns, repeats_in(folder)), default=0)
    # Another process may remove the folder, or it may not be read.
    except OSError:
        return 0
