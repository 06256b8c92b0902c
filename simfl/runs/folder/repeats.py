"""The repeats of a run: folders `repeat-1`, `repeat-2`, ... in one folder, each with a complete run."""

import re
from pathlib import Path

from simfl.config.digests import SUMS, checked
from simfl.errors import BadInput
from simfl.runs.folder.saved_rounds import NAME
from simfl.runs.folder.unfinished import has_saved, unfinished_scenario
from simfl.runs.results.summary import Summary, read
from simfl.scenario.load import load, resolved_yaml
from simfl.scenario.schema import Scenario

# No leading zero: two names of one number would be counted twice.
_NAME = re.compile(r"repeat-([1-9][0-9]{0,5})")


def repeat(folder: Path, number: int) -> Path:
    """Return the folder of a repeat; they count from 1."""
    return folder / f"repeat-{number}"


def repeats_in(folder: Path) -> list[Path]:
    """Return the folders of the repeats in a folder, by number."""
    matches = {path: _NAME.fullmatch(path.name) for path in (folder.iterdir() if folder.is_dir() else ())}
    # By number and not by name, where repeat-10 stands before repeat-2.
    numbers = {path: int(match[1]) for path, match in matches.items() if match and path.is_dir()}
    return sorted(numbers, key=numbers.__getitem__)


def is_finished(run: Path) -> bool:
    """Return True if a repeat finished, even if its files are damaged now."""
    # A damaged summary counts as finished: it is reported as damaged, and not replaced by a new run.
    return any((run / name).exists() for name in ("summary.json", SUMS)) and not (run / NAME).is_dir()


def finished(folder: Path) -> dict[Path, Summary]:
    """Return the summary of each finished repeat by its folder.

    Raises:
        BadInput: A summary cannot be read, or no repeat is finished.
    """
    summaries = {run: read(run / "summary.json") for run in repeats_in(folder) if is_finished(run)}
    if not summaries:
        remedy = f"continue them (simfl run --resume {folder} --repeat N)"
        raise BadInput(f"{folder}: none of its repeats is finished: {remedy}")
    return summaries


def todo(folder: Path, count: int, scenario: Scenario) -> list[Path]:
    """Return the folders of the repeats among the first `count` that are not finished.

    Raises:
        BadInput: A finished repeat is of another scenario.
    """
    runs = [repeat(folder, number) for number in range(1, count + 1)]
    # Repeats of another scenario would be averaged with these.
    text = resolved_yaml(scenario)
    for run in filter(is_finished, runs):
        checked(run / "summary.json")
        if checked(run / "resolved.yaml").read_text(encoding="utf-8") != text:
            raise BadInput(f"{run} is of another scenario: choose another folder")
    return [run for run in runs if not is_finished(run)]


def scenario_of(folder: Path) -> Scenario:
    """Load the scenario that is repeated in a folder, to continue it."""
    # All repeats have one scenario (`todo`), so any of them will do; an unfinished one has no files beside it
    # yet.
    first = repeats_in(folder)[0]
    return unfinished_scenario(first) if has_saved(first) else load(checked(first / "resolved.yaml"))


def check_folder(folder: Path, resumed: bool, repeated: bool) -> None:
    """Raise BadInput if a folder would mix a run with repeats, or new repeats with old ones.

    Args:
        folder: Folder of the run.
        resumed: The run in it is to be continued.
        repeated: The run is to be repeated.
    """
    held = repeats_in(folder)
    if resumed and repeated and not held:
        raise BadInput(f"{folder}: holds no repeat of a run")
    if held and not repeated:
        remedy = "give --repeat N to continue them" if resumed else "choose another folder"
        raise BadInput(f"{folder} holds the repeats of a run: {remedy}")
    if held and not resumed:
        remedy = f"continue them (simfl run --resume {folder} --repeat N), or choose another folder"
        raise BadInput(f"{folder} holds repeats: {remedy}")
    if repeated and ((folder / "summary.json").exists() or has_saved(folder)):
        raise BadInput(f"{folder} holds a run: choose another folder for repeats")
