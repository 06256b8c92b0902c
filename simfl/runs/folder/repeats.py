"""The repeats of a run: folders `repeat-1`, `repeat-2`, ... in one folder, each a run's by itself."""

import re
from pathlib import Path

from simfl.config.digests import SUMS, checked
from simfl.errors import BadInput
from simfl.runs.folder.saved_rounds import NAME
from simfl.runs.folder.unfinished import has_saved, unfinished_scenario
from simfl.runs.results.summary import Summary, read
from simfl.scenario.load import load, resolved_yaml
from simfl.scenario.schema import Scenario

_NAME = re.compile(r"repeat-([1-9][0-9]{0,5})")


def repeat(folder: Path, number: int) -> Path:
    """Return the folder of a repeat; they count from 1."""
    return folder / f"repeat-{number}"


def repeats_in(folder: Path) -> list[Path]:
    """Return the folders of the repeats that are in a folder, by number."""
    found = {path: _NAME.fullmatch(path.name) for path in (folder.iterdir() if folder.is_dir() else ())}
    numbers = {path: int(match[1]) for path, match in found.items() if match and path.is_dir()}
    return sorted(numbers, key=numbers.__getitem__)


def is_finished(run: Path) -> bool:
    """Return True if a repeat came to its end, even if its files are damaged now."""
    return any((run / name).exists() for name in ("summary.json", SUMS)) and not (run / NAME).is_dir()


def finished(folder: Path) -> dict[Path, Summary]:
    """Return the summaries of the finished repeats; BadInput if one cannot be read, or there are none."""
    found = {run: read(run / "summary.json") for run in repeats_in(folder) if is_finished(run)}
    if not found:
        raise BadInput(f"{folder}: none of its repeats is finished")
    return found


def todo(folder: Path, count: int, scenario: Scenario) -> list[Path]:
    """Return the first `count` repeats without those that are finished; BadInput if one is of another run."""
    runs = [repeat(folder, number) for number in range(1, count + 1)]
    text = resolved_yaml(scenario)
    for run in filter(is_finished, runs):
        checked(run / "summary.json")
        if checked(run / "resolved.yaml").read_text(encoding="utf-8") != text:
            raise BadInput(f"{run} is of another scenario: choose another folder")
    return [run for run in runs if not is_finished(run)]


def scenario_of(folder: Path) -> Scenario:
    """Load the scenario that is repeated in a folder, to go on with it."""
    first = repeats_in(folder)[0]
    return unfinished_scenario(first) if has_saved(first) else load(checked(first / "resolved.yaml"))


def check_folder(folder: Path, resumed: bool, repeated: bool) -> None:
    """Refuse to mix a run with the repeats of one, and new repeats with others, in a folder."""
    held = repeats_in(folder)
    if resumed and repeated and not held:
        raise BadInput(f"{folder}: no repeat of a run is there")
    if held and not repeated:
        remedy = "give --repeat N to go on with them" if resumed else "choose another folder"
        raise BadInput(f"{folder} holds the repeats of a run: {remedy}")
    if held and not resumed:
        remedy = f"go on with them (simfl run --resume {folder} --repeat N), or choose another folder"
        raise BadInput(f"{folder} holds repeats: {remedy}")
    if repeated and ((folder / "summary.json").exists() or has_saved(folder)):
        raise BadInput(f"{folder} holds a run: choose another folder for repeats")
