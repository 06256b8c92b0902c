"""Problems found while building, placed like those found while loading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simfl.errors import Problem, ScenarioError, cut
from simfl.python_files import blamed
from simfl.scenario.schema import Scenario

MAX_LINE = 600
"""Characters of a line of what `make` says."""


def error(s: Scenario, path: str, message: str) -> ScenarioError:
    """A problem at a place of a scenario."""
    return ScenarioError((Problem(s.name, None, path, message),))


def or_error(s: Scenario, path: str, make: Callable[[], Any]) -> Any:
    """Return what `make` gives; its ValueError, a file that cannot be read, or what a stranger's code raises
    becomes a problem at a place of the scenario."""
    try:
        with blamed(ValueError):
            return make()
    except ScenarioError:  # it knows its place
        raise
    except ValueError as problem:
        lines = str(problem).splitlines()  # some name a file, and that by a user's own text
        raise error(s, path, "\n".join(cut(line, MAX_LINE) for line in lines)) from None
    except OSError as problem:
        file = f"{cut(str(problem.filename))}: " if problem.filename else ""
        raise error(s, path, f"{file}{problem.strerror or problem}") from None
