"""The folder `unfinished` of a run's folder, which has the finished rounds while the run is not finished.

They stay however the run ends, and a resumed run continues from them. Their file is locked during a run.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from simfl.config.python_files import left_alone
from simfl.errors import BadInput, reason
from simfl.runs.folder import disk
from simfl.runs.folder.saved_rounds import BASE, NAME, Unfinished
from simfl.scenario.schema import Scenario


def unfinished_scenario(run: Path) -> Scenario:
    """Load the scenario of the unfinished run in a folder; BadInput if there is none."""
    with locked(run) as own:
        return own.scenario()


def has_saved(run: Path) -> bool:
    """Return True if a folder holds finished rounds of an unfinished run."""
    path = run / NAME / BASE
    return path.exists() and not (path.is_file() and path.stat().st_size == 0)


def recover(run: Path) -> None:
    """Write the files of a killed run, as far as it was saved. BadInput if it is at work or damaged."""
    _refuse_earlier(run)
    if has_saved(run):
        with locked(run) as own, left_alone():
            own.read(own.scenario()).write(run, own.trace())


@contextmanager
def locked(run: Path) -> Iterator[Unfinished]:
    """Lock and read the unfinished part of a run's folder.

    Raises:
        BadInput: it is in use or damaged (Damaged), or nothing is unfinished.
    """
    if not (run / NAME).is_dir():
        raise _nothing(run)
    with _opened(run) as own:
        if not has_saved(run):
            raise _nothing(run)
        own.load()
        yield own


@contextmanager
def taken(run: Path) -> Iterator[Unfinished]:
    """Make, try and lock a folder for a new run, and remove it if unused. BadInput if it cannot be taken."""
    made = disk.make(run)
    try:
        with _opened(run) as own:
            if has_saved(run):
                remedy = f"go on with it (simfl run --resume {run}), or remove {run / NAME}"
                raise BadInput(f"{run} holds an unfinished run: {remedy}, or choose another folder")
            for path in run.glob(".*.writing"):
                path.unlink(missing_ok=True)  # names that `atomic` gives, half-written by a killed run
            yield own
    finally:
        for folder in made:  # only where it is empty
            with suppress(OSError):
                folder.rmdir()


@contextmanager
def _opened(run: Path) -> Iterator[Unfinished]:
    """Open and lock the file of an unfinished run; a new one is removed if nothing is written."""
    _refuse_earlier(run)
    path = run / NAME / BASE
    is_new = not path.exists()
    try:
        path.parent.mkdir(exist_ok=True)
    except (OSError, ValueError) as error:
        raise BadInput(f"{run} cannot be written: {reason(error)}") from None
    busy = f"{run}: another run is at work here: wait for it, or choose another folder"
    with disk.locked(path, busy) as base:
        try:
            yield Unfinished(run, base)
        finally:
            if is_new and path.exists() and not path.stat().st_size:
                discard(run)


def discard(run: Path) -> None:
    """Remove the unfinished part of a run."""
    (run / NAME / BASE).unlink(missing_ok=True)  # first: without it nothing is unfinished
    shutil.rmtree(run / NAME, ignore_errors=True)


def _nothing(run: Path) -> BadInput:
    return BadInput(f"{run}: {'no unfinished run is there' if run.is_dir() else 'there is no such folder'}")


def _refuse_earlier(run: Path) -> None:
    if (run / NAME / "journal.jsonl").exists():
        remedy = "resume it with that simfl, or run the scenario again in another folder"
        raise BadInput(f"{run / NAME} was saved by an earlier simfl: {remedy}")
