"""Modules by their names from before they were moved."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from simfl.moved import MOVED, new_name


def _old_names() -> Iterator[str]:
    """Yield each old name, and those of the modules in a package that was moved."""
    for old in MOVED:
        yield old
        package = import_module(f"simfl.{new_name(old)}")
        for module in pkgutil.iter_modules(getattr(package, "__path__", ())):
            yield f"{old}.{module.name}"


@pytest.mark.filterwarnings("ignore:simfl:DeprecationWarning")
def test_old_names_give_the_same_modules() -> None:
    """More than 100 names, of all packages and modules that were moved."""
    names = list(_old_names())
    assert len(names) > 100
    for old in names:
        assert import_module(f"simfl.{old}") is import_module(f"simfl.{new_name(old)}"), old


FILE = """
import simfl.results.trace as x
from simfl.results import trace
from simfl.population import availability
from simfl.selection.schemes import SELECTION
from simfl.world.availability import Availability
import simfl.simulation
assert x is trace and x.__spec__.name == "simfl.trace.rows"
assert issubclass(availability.Always, Availability)
assert simfl.simulation.run is simfl.run
try:
    import simfl.results.absent
except ModuleNotFoundError as error:
    print(error)
"""


@pytest.mark.ci
def test_old_names_warn_once_in_the_users_file(tmp_path: Path) -> None:
    """All forms of import; a line of stderr for each name names the file, the line and the new name."""
    file = tmp_path / "own.py"
    file.write_text(FILE)
    command = [sys.executable, "-W", "default::DeprecationWarning", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "No module named 'simfl.runs.results.absent'\n"
    warned = [line.partition("Warning: ")[2] for line in done.stderr.splitlines() if str(file) in line]
    assert sorted(warned) == [
        "simfl.population is now simfl.world",
        "simfl.results is now simfl.runs.results",
        "simfl.results.trace is now simfl.trace.rows",
        "simfl.selection is now simfl.world",
        "simfl.selection.schemes is now simfl.world.selection",
        "simfl.simulation is now simfl.runs.simulation",
    ]


@pytest.mark.ci
def test_command_shows_the_warning_of_a_users_kind(tmp_path: Path) -> None:
    """A selection in a file that imports its base by the old name still runs, with a line on stderr."""
    (tmp_path / "first.py").write_text(
        "from simfl.selection.schemes import All\n\n\nclass First(All):\n    '''As all.'''\n"
    )
    override = f"selection={{module: {tmp_path / 'first.py'}:First}}"
    command = [sys.executable, "-m", "simfl", "check", "tutorial", "--set", override]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "first.py:1: DeprecationWarning: simfl.selection.schemes is now simfl.world" in done.stderr
